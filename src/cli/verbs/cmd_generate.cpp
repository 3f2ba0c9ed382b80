#include <CLI/CLI.hpp>
#include <memory>

#include "cli/rows/generate_run.h"
#include "cli/run_flags.h"
#include "cli/verbs.h"

namespace slimexx::cli {
namespace {

void add_sampling_flags(CLI::App& app, GenerateFlags& flags) {
  app.add_option("--n", flags.n, "Samples of each prompt (default 1)")->type_name("COUNT");
  app.add_option("--max-new-tokens", flags.max_new_tokens,
                 "Longest response in tokens (default 512)")
      ->type_name("COUNT");
  app.add_option("--temperature", flags.temperature, "Divides the logits (default 1); 0: greedy")
      ->type_name("NUMBER");
  app.add_option("--top-p", flags.top_p,
                 "Sample from the likeliest tokens of this mass (default 1)")
      ->type_name("NUMBER");
  app.add_option("--top-k", flags.top_k, "Sample from this many likeliest tokens (default 0: all)")
      ->type_name("COUNT");
  app.add_option("--seed", flags.seed, "Names the random numbers (default 0)")->type_name("NUMBER");
  app.add_flag("--greedy", flags.greedy, "Take the likeliest token");
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
  app.add_option("--output", flags->output, "JSON lines, one a sample; default stdout")
      ->type_name("FILE");
  app.add_option("--input-key", flags->input_key, "Key of the prompt (default prompt)")
      ->type_name("KEY");
  app.add_flag("--apply-chat-template", flags->apply_chat_template,
               "Make a prompt that is plain text a user's message");
  add_sampling_flags(app, *flags);
  app.add_option(
         "--kv-cache-gib", flags->kv_cache_gib,
         "Memory for keys and values (default: 1 on the CPU, most of what is free on a GPU)")
      ->type_name("GIB");
  add_device_flag(app, flags->device);
  app.footer(
      "A line of the output: {\"index\": of the prompt, \"sample\", \"tokens\": of the response,\n"
      "\"response\": their text, \"logprobs\": one a token, \"finish\": stop, length or abort}.\n"
      "A prompt that is a list of messages is rendered by the folder's chat template.\n\n"
      "Examples:\n"
      "  slimexx generate --hf-checkpoint model/ --input prompts.jsonl --output out.jsonl --n 8\n"
      "  slimexx generate --hf-checkpoint model/ --input prompts.jsonl --greedy");
  return [flags](Session& session) { run_generate(*flags, session); };
}

}  // namespace slimexx::cli
