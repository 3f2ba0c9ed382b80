// Tests splitting layers into pipeline stages, and the errors if they do not divide.
#include "slimexx/model/stages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/families.h"
#include "slimexx/model/layout.h"
#include "test_paths.h"

namespace slimexx::model {
namespace {

ModelSpec spec_with(int64_t num_layers) {
  ModelSpec spec;
  spec.layers.resize(static_cast<size_t>(num_layers));
  return spec;
}

// The layers of each rank as text, such as "0-3 4-7"; chunks are joined by "+".
std::string split_text(const ModelSpec& spec, const PipelineSplit& split) {
  std::string text;
  for (const auto& chunks : list_stages(spec, split)) {
    if (!text.empty()) text += " ";
    for (size_t c = 0; c < chunks.size(); ++c) {
      text +=
          fmt::format("{}{}-{}", c > 0 ? "+" : "", chunks[c].first_layer, chunks[c].end_layer - 1);
      if (chunks[c].has_embedding) text += "E";
      if (chunks[c].has_head) text += "H";
    }
  }
  return text;
}

std::string refusal(const ModelSpec& spec, const PipelineSplit& split) {
  try {
    return "no refusal: " + split_text(spec, split);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return std::string(error.message()) + "; " + error.hint();
  }
}

StageRange last_stage(const ModelSpec& spec) {
  return list_stages(spec, {.num_ranks = 2}).back().back();
}

TEST(Stages, LayersAreDividedAsMegatronDivides) {
  EXPECT_EQ(split_text(spec_with(8), {}), "0-7EH");
  EXPECT_EQ(split_text(spec_with(8), {.num_ranks = 2}), "0-3E 4-7H");
  EXPECT_EQ(split_text(spec_with(47), {.num_ranks = 2, .first_layers = 23}), "0-22E 23-46H");
  EXPECT_EQ(split_text(spec_with(47), {.num_ranks = 2, .last_layers = 23}), "0-23E 24-46H");
  EXPECT_EQ(split_text(spec_with(47), {.num_ranks = 4, .first_layers = 11, .last_layers = 12}),
            "0-10E 11-22 23-34 35-46H");
  EXPECT_EQ(split_text(spec_with(8), {.num_ranks = 2, .layers_per_virtual_stage = 2}),
            "0-1E+4-5 2-3+6-7H");
  EXPECT_EQ(split_text(spec_with(4), {.num_ranks = 2, .layers_per_virtual_stage = 1}),
            "0-0E+2-2 1-1+3-3H");
}

TEST(Stages, RefusalsGiveTheEquationAndASplitThatWouldDo) {
  EXPECT_EQ(refusal(spec_with(47), {.num_ranks = 2}),
            "47 layers are not divisible by 2 pipeline stages; "
            "set parallel.decoder_first_pipeline_num_layers to 23");
  EXPECT_EQ(refusal(spec_with(47), {.num_ranks = 4}),
            "47 layers are not divisible by 4 pipeline stages; "
            "set parallel.decoder_first_pipeline_num_layers to 11");
  EXPECT_EQ(refusal(spec_with(47), {.num_ranks = 4, .first_layers = 10}),
            "47 layers - 10 of the first stage = 37 are not divisible by 3 pipeline stages; "
            "set parallel.decoder_first_pipeline_num_layers to 11");
  EXPECT_EQ(refusal(spec_with(5), {.num_ranks = 2, .last_layers = 7}),
            "5 layers - 7 of the last stage = -2 are not divisible by 1 pipeline stage; "
            "set parallel.decoder_last_pipeline_num_layers to 3");
  EXPECT_EQ(refusal(spec_with(8), {.num_ranks = 2, .first_layers = 3, .last_layers = 4}),
            "8 layers - 3 of the first stage - 4 of the last stage = 1 are not divisible by 0 "
            "pipeline stages; "
            "set parallel.decoder_first_pipeline_num_layers to 4");
  EXPECT_EQ(refusal(spec_with(3), {.num_ranks = 4}),
            "3 layers are not divisible by 4 pipeline stages; "
            "set parallel.pipeline_model_parallel_size to 2 and "
            "parallel.decoder_first_pipeline_num_layers to 1");
  EXPECT_EQ(refusal(spec_with(8), {.num_ranks = 2, .layers_per_virtual_stage = 3}),
            "8 layers are not divisible by 2 pipeline ranks x 3 layers; "
            "set parallel.num_layers_per_virtual_pipeline_stage to one of 1, 2, 4");
  EXPECT_EQ(refusal(spec_with(8), {.layers_per_virtual_stage = 4}),
            "interleaved stages need more than one pipeline rank; "
            "leave out parallel.num_layers_per_virtual_pipeline_stage");
  EXPECT_EQ(
      refusal(spec_with(8), {.num_ranks = 2, .first_layers = 3, .layers_per_virtual_stage = 2}),
      "interleaved stages must all have the same size; "
      "leave out parallel.decoder_first_pipeline_num_layers");
  EXPECT_EQ(refusal(spec_with(7), {.num_ranks = 2, .layers_per_virtual_stage = 2}),
            "7 layers are not divisible by 2 pipeline ranks x 2 layers; "
            "leave out parallel.num_layers_per_virtual_pipeline_stage, and "
            "set parallel.decoder_first_pipeline_num_layers to 3");
}

TEST(Stages, OneStageHasNoFirstAndNoLast) {
  EXPECT_EQ(refusal(spec_with(7), {.first_layers = 3}),
            "is 3, but the only pipeline stage has all 7 layers; "
            "leave out parallel.decoder_first_pipeline_num_layers, or raise "
            "parallel.pipeline_model_parallel_size");
  EXPECT_EQ(refusal(spec_with(7), {.first_layers = 3, .last_layers = 4}),
            "is 3, but the only pipeline stage has all 7 layers; "
            "leave out parallel.decoder_first_pipeline_num_layers and "
            "parallel.decoder_last_pipeline_num_layers, or raise "
            "parallel.pipeline_model_parallel_size");
}

// Suggested splits are valid.
TEST(Stages, SuggestedSplitsDivide) {
  for (int64_t layers = 2; layers <= 60; ++layers) {
    for (int ranks = 2; ranks <= std::min<int64_t>(layers, 16); ++ranks) {
      const std::string text = refusal(spec_with(layers), {.num_ranks = ranks});
      if (text.starts_with("no refusal")) continue;
      PipelineSplit split{.num_ranks = ranks};
      const auto number_after = [&](const std::string& key) -> std::optional<int64_t> {
        const size_t at = text.find(key + " to ");
        if (at == std::string::npos) return std::nullopt;
        return std::stoll(text.substr(at + key.size() + 4));
      };
      split.first_layers = number_after("decoder_first_pipeline_num_layers");
      split.last_layers = number_after("decoder_last_pipeline_num_layers");
      EXPECT_FALSE(refusal(spec_with(layers), split).find("no refusal") == std::string::npos)
          << text << "\n"
          << refusal(spec_with(layers), split);
    }
  }
}

// GLM-5 and DeepSeek-V3.2: a layer that shares a selection stays with the layer that made it.
TEST(Stages, NoStageBeginsAtALayerThatSharesASelection) {
  const std::string folder = test_data_path("golden/oracle/glm_moe_dsa");
  const ModelSpec spec =
      read_model_spec(io::HfFolder::open(folder).config(), folder + "/config.json");
  EXPECT_EQ(split_text(spec, {.num_ranks = 2}), "0-1E 2-3H");
  EXPECT_EQ(refusal(spec, {.num_ranks = 2, .first_layers = 1}),
            "a pipeline stage would begin at layer 1, which shares the keys of an earlier layer; "
            "stages may begin at layers 0, 2; "
            "set parallel.decoder_first_pipeline_num_layers to 2");
  EXPECT_EQ(refusal(spec, {.num_ranks = 4}),
            "a pipeline stage would begin at layer 1, which shares the keys of an earlier layer; "
            "stages may begin at layers 0, 2; set parallel.pipeline_model_parallel_size to 2");
  // Cycles of four layers, where only the first selects keys.
  ModelSpec cycles = spec;
  cycles.layers.clear();
  for (int layer = 0; layer < 24; ++layer)
    cycles.layers.push_back(spec.layers[layer % 4 == 0 ? 0 : 1]);
  EXPECT_EQ(split_text(cycles, {.num_ranks = 3}), "0-7E 8-15 16-23H");
  EXPECT_EQ(refusal(cycles, {.num_ranks = 4}),
            "a pipeline stage would begin at layer 6, which shares the keys of an earlier layer; "
            "stages may begin at layers 0, 4, 8, 12, 16, 20; "
            "set parallel.decoder_first_pipeline_num_layers to 4 and "
            "parallel.decoder_last_pipeline_num_layers to 4");
  // Interleaved stages of three layers would begin at layers that share a selection, and no other
  // count works.
  EXPECT_EQ(refusal(cycles, {.num_ranks = 4, .layers_per_virtual_stage = 3}),
            "a pipeline stage would begin at layer 3, which shares the keys of an earlier layer; "
            "stages may begin at layers 0, 4, 8, 12, 16, 20; "
            "leave out parallel.num_layers_per_virtual_pipeline_stage, and "
            "set parallel.decoder_first_pipeline_num_layers to 4 and "
            "parallel.decoder_last_pipeline_num_layers to 4");
  EXPECT_EQ(refusal(cycles, {.num_ranks = 2, .layers_per_virtual_stage = 3}),
            "a pipeline stage would begin at layer 3, which shares the keys of an earlier layer; "
            "stages may begin at layers 0, 4, 8, 12, 16, 20; "
            "set parallel.num_layers_per_virtual_pipeline_stage to 4");
  // An uneven split must begin at allowed layers too.
  EXPECT_EQ(refusal(cycles, {.num_ranks = 5}),
            "24 layers are not divisible by 5 pipeline stages; "
            "set parallel.decoder_first_pipeline_num_layers to 8");
}

TEST(Stages, TheLastStageHoldsACopyOfTheEmbeddingWhereItNeedsOne) {
  ModelSpec spec = spec_with(4);
  const StageRange first{.end_layer = 2, .has_head = false};
  const StageRange last{.first_layer = 2, .end_layer = 4, .has_embedding = false};
  EXPECT_FALSE(holds_embedding_copy(spec, last));
  spec.mtp.resize(1);
  EXPECT_FALSE(holds_embedding_copy(spec, last));
  spec.mtp[0].is_trained = true;
  EXPECT_TRUE(holds_embedding_copy(spec, last));
  spec.mtp.clear();
  spec.tied_embeddings = true;
  EXPECT_TRUE(holds_embedding_copy(spec, last));
  EXPECT_FALSE(holds_embedding_copy(spec, first));
  EXPECT_FALSE(holds_embedding_copy(spec, whole_model(spec)));
}

// Each element counts once in checkpoints and norms, also an embedding that two stages hold;
// together the stages hold the whole model.
TEST(Stages, CountEveryElementOnce) {
  for (const std::string name : {"models/qwen3_tied_mqa", "models/llama", "oracle/glm4_moe"}) {
    const std::string folder = test_data_path("golden/" + name);
    ModelSpec spec = read_model_spec(io::HfFolder::open(folder).config(), folder + "/config.json");
    for (MtpSpec& mtp : spec.mtp) mtp.is_trained = true;
    std::map<std::string, int64_t> whole, counted, held;
    for (const ParameterInfo& info : list_parameters(spec))
      for (const HfPart& part : info.parts)
        whole[part.name] =
            std::accumulate(part.shape.begin(), part.shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<std::vector<ParameterInfo>> stages;
    for (const auto& chunks : list_stages(spec, {.num_ranks = 2}))
      stages.push_back(list_parameters(spec, chunks));
    for (const auto& infos : make_layout(stages, dist::GridShape(2, {.pp = 2})).ranks) {
      for (const ParameterInfo& info : *infos) {
        for (const ElementRun& run : list_runs(info)) {
          const HfPart& part = info.parts[run.part];
          counted[part.name] += part.is_counted ? run.size : 0;
          held[part.name] += run.size;
        }
      }
    }
    EXPECT_EQ(counted, whole) << name;
    whole["model.embed_tokens.weight"] *= holds_embedding_copy(spec, last_stage(spec)) ? 2 : 1;
    EXPECT_EQ(held, whole) << name;
  }
}

}  // namespace
}  // namespace slimexx::model
