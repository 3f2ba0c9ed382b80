// Tokenizer speed on one core: tokenizer_bench TOKENIZER_DIR TEXT_LINES_FILE [rounds]
// Prints the seconds of loading and, for each round, the MB/s of encoding the file line by line and
// of decoding the ids.
#include <fmt/core.h>
#include <time.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/strings.h"
#include "slimexx/text/tokenizer.h"

namespace {

using slimexx::text::TokenId;
using slimexx::text::Tokenizer;

// CPU time of this thread, so that other load on the host does not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const std::function<void()>& action) {
  const double start = thread_seconds();
  action();
  return thread_seconds() - start;
}

void run(const std::string& tokenizer_path, const std::string& text_path, int rounds) {
  const double start = thread_seconds();
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path);
  const double load = thread_seconds() - start;
  fmt::print("load {:.3f} s, {} ids\n", load, tokenizer.vocab_size());
  const std::string text = slimexx::read_text_file(text_path);
  const std::vector<std::string> lines = slimexx::split(text, '\n');
  const double megabytes = 1e-6 * static_cast<double>(text.size());
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<TokenId>> ids(lines.size());
    const double encode = seconds_of([&] {
      for (size_t i = 0; i < lines.size(); ++i) ids[i] = tokenizer.encode(lines[i]);
    });
    size_t decoded = 0, tokens = 0;
    const double decode = seconds_of([&] {
      for (const auto& line : ids) {
        decoded += tokenizer.decode(line).size();
        tokens += line.size();
      }
    });
    fmt::print("encode {:.1f} MB/s, decode {:.1f} MB/s, {} tokens, {} of {} bytes restored\n",
               megabytes / encode, megabytes / decode, tokens, decoded + lines.size() - 1,
               text.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: tokenizer_bench TOKENIZER_DIR TEXT_LINES_FILE [rounds]\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 5);
  } catch (const slimexx::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return slimexx::exit_status(error.code());
  }
}
