#include <CLI/CLI.hpp>
#include <memory>

#include "cli/rows/generate_run.h"
#include "cli/run_flags.h"
#include "cli/verbs.h"

namespace slimexx::cli {
namespace {

void add_sampling_flags(CLI::App& app, GenerateFlags& flags) {
  app.add_option("--n", flags.n, "Samples per prompt (default 1)")->type_name("COUNT");
  app.add_option("--max-new-tokens", flags.max_new_tokens,
                 "Maximum response length in tokens (default 512)")
      ->type_name("COUNT");
  app.add_option("--temperature", flags.temperature, "Sampling temperature (default 1); 0: greedy")
      ->type_name("NUMBER");
  app.add_option("--top-p", flags.top_p,
                 "Nucleus sampling: total probability of the tokens kept (default 1: all)")
      ->type_name("NUMBER");
  app.add_option("--top-k", flags.top_k, "Sample from the k most likely tokens (default 0: all)")
      ->type_name("COUNT");
  app.add_option("--seed", flags.seed, "Seed for sampling (default 0)")->type_name("NUMBER");
  app.add_flag("--greedy", flags.greedy, "Always take the most likely token");
}

}  // namespace

VerbBody declare_generate(CLI::App& app) {
  auto flags = std::make_shared<GenerateFlags>();
  app.add_option("--hf-checkpoint", flags->hf_checkpoint, "Hugging Face folder of the model")
      ->type_name("DIR")
      ->required();
  app.add_option("--input", flags->input, "JSON lines {\"prompt\"} or {\"tokens\"}")
      ->type_name("FILE")
      ->required();
  app.add_option("--output", flags->output, "JSON lines, one per sample; default stdout")
      ->type_name("FILE");
  app.add_option("--input-key", flags->input_key, "Key of the prompt (default prompt)")
      ->type_name("KEY");
  app.add_flag("--apply-chat-template", flags->apply_chat_template,
               "Turn a plain-text prompt into a user message and render it with the chat template");
  add_sampling_flags(app, *flags);
  app.add_option("--kv-cache-gib", flags->kv_cache_gib,
                 "GiB for the KV cache (default: 1 on the CPU, most of the free memory on a GPU)")
      ->type_name("GIB");
  add_device_flag(app, flags->device);
  app.footer(
      "Keys of an output line: index (of the prompt), sample, tokens (of the response), response "
      "(as\n"
      "text), logprobs (one per token), finish (stop, length or abort).\n"
      "A prompt that is a list of messages is rendered with the folder's chat template.\n"
      "\n"
      "Examples:\n"
      "  slimexx generate --hf-checkpoint model/ --input prompts.jsonl --output out.jsonl --n 8\n"
      "  slimexx generate --hf-checkpoint model/ --input prompts.jsonl --greedy");
  return [flags](Session& session) { run_generate(*flags, session); };
}

}  // namespace slimexx::cli
