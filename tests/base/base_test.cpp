#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "sanitized.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/philox.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx {
namespace {

TEST(Philox, MatchesPublishedVectors) {
  // Known answers from the Random123 distribution (kat_vectors, philox4x32 10).
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalHasUnitMoments) {
  PhiloxStream stream(7, 0);
  double sum = 0, squares = 0;
  constexpr int n = 20000;
  for (int i = 0; i < n; ++i) {
    const double x = stream.next_normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.03);
  EXPECT_NEAR(squares / n, 1, 0.05);
}

TEST(Json, RefusesWhatTheLibraryLetsThrough) {
  EXPECT_THROW(parse_json(R"({"a":1,"a":2})", "t"), Error);
  EXPECT_THROW(parse_json(R"({"a":{"b":1,"b":2}})", "t"), Error);
  EXPECT_THROW(parse_json("[1] x", "t"), Error);
  EXPECT_THROW(parse_json(std::string_view("{}\0junk", 7), "t"), Error);
  EXPECT_THROW(parse_json("\xEF\xBB\xBF{}", "t"), Error);
  EXPECT_THROW(parse_json(std::string(100000, '['), "t"), Error);
  EXPECT_THROW(parse_json("{\"a\": \"\xFF\"}", "t"), Error);
  const Json value = parse_json(R"({"b":[1,{"c":null}],"a":"x"})", "t");
  EXPECT_EQ(value.dump(), R"({"b":[1,{"c":null}],"a":"x"})");
  EXPECT_EQ(json_string(value, "a", "t"), "x");
  EXPECT_THROW(json_int(value, "a", "t"), Error);
}

template <class Body>
Error error_of(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no Error";
  return {ErrorCode::kRun, ""};
}

TEST(Json, RefusesWideIntegersWhereAsked) {
  for (const char* wide :
       {"18446744073709551616", "-9223372036854775809", "1000000000000000019884624838656"}) {
    EXPECT_TRUE(parse_json(wide, "t").is_number_float()) << wide;
    const Error error = error_of([&] { parse_json(wide, "t", WideIntegers::kRefuse); });
    EXPECT_NE(error.message().find(wide), std::string::npos) << error.message();
    EXPECT_NE(error.hint().find("in quotes"), std::string::npos);
  }
  for (const char* kept : {"18446744073709551615", "-9223372036854775808", "1e30", "0.1", "-1.5E3"})
    EXPECT_EQ(parse_json(kept, "t", WideIntegers::kRefuse), parse_json(kept, "t")) << kept;
}

TEST(Json, EveryRefusalHasARemedy) {
  const std::string deep(kMaxJsonDepth + 1, '[');
  for (const std::string& text :
       {std::string("{\"a\":"), std::string("{'a':1}"), deep, std::string("[1,2,]"),
        std::string("\xFF"), std::string("[1\0]", 4), std::string("{\"a\":1,\"a\":2}")}) {
    EXPECT_NE(error_of([&] { parse_json(text, "t"); }).hint(), "") << text;
  }
  const Json value = parse_json(R"({"text":"x"})", "t");
  EXPECT_NE(error_of([&] { json_int(value, "text", "t"); }).hint(), "");
  EXPECT_NE(error_of([&] { json_string(value, "none", "t"); }).hint(), "");
}

// The parser's message quotes raw bytes of the file.
TEST(Json, QuotesNoControlCharacters) {
  const Error e = error_of([] { parse_json("[\"\x1b[31m\xFF\"]", "t"); });
  EXPECT_TRUE(is_valid_utf8(e.what()));
  EXPECT_EQ(e.message().find('\x1b'), std::string::npos) << e.what();
}

TEST(File, EveryRefusalHasARemedy) {
  const std::string folder = std::filesystem::temp_directory_path().string();
  const std::string file = "/proc/self/exe";
  for (const std::string& path : {folder + "/" + std::string(300, 'x'), file + "/below",
                                  folder + "/none/x", std::string("/proc/self/mem/x")}) {
    EXPECT_NE(error_of([&] { write_file_atomic(path, "x"); }).hint(), "") << path;
    EXPECT_NE(error_of([&] { read_text_file(path); }).hint(), "") << path;
  }
  EXPECT_NE(error_of([&] { read_text_file(file, 10); }).hint(), "");
}

TEST(Json, FloatsReadBackExactly) {
  for (float x : {0.1f, -3.4028235e38f, 1e-45f, 0.0f, 16777217.0f}) {
    EXPECT_EQ(std::strtof(format_float(x).c_str(), nullptr), x) << format_float(x);
  }
  EXPECT_EQ(format_float(NAN), "null");
}

TEST(ThreadPool, CoversTheRangeOnceAndRethrows) {
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    std::vector<std::atomic<int>> seen(1000);
    parallel_for(1000, 7, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    for (auto& count : seen) EXPECT_EQ(count, 1);
    EXPECT_THROW(parallel_for(100, 1, [](int64_t, int64_t) { throw std::runtime_error("x"); }),
                 std::runtime_error);
  }
}

// A worker that is about to sleep must notice that its pool ends. A missed wake-up once hung within
// about 10,000 rounds.
TEST(ThreadPool, EndsWhileWorkersGoToSleep) {
  for (int round = 0; round < 20'000; ++round) set_num_threads(2 + round % 2);
  EXPECT_EQ(num_threads(), 3);
}

TEST(ThreadPool, RunsShortLoopsOfSeveralCallers) {
  set_num_threads(4);
  const auto call = [](int64_t seed) {
    for (int64_t round = 0; round < 10'000; ++round) {
      const int64_t n = 1 + (round + seed) % 9;
      std::atomic<int64_t> sum = 0;
      const auto add = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sum += i;
        if (round % 97 == 0 && begin == 0) throw std::runtime_error("x");
      };
      try {
        parallel_for(n, 1, add);
        EXPECT_NE(round % 97, 0);
      } catch (const std::runtime_error&) {
        EXPECT_EQ(round % 97, 0);
      }
      ASSERT_EQ(sum, n * (n - 1) / 2) << "round " << round;
    }
  };
  std::thread other(call, 5);
  call(0);
  other.join();
}

// Runs `body` in a forked child that ends with exit(), and returns its status. A signal ends a
// child that hangs.
int status_of_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ThreadPool, ForkedChildDoesWithoutTheWorkers) {
  set_num_threads(4);
  EXPECT_EQ(status_of_child([] {
              std::atomic<int> calls = 0;
              parallel_for(1000, 1, [&](int64_t begin, int64_t end) { calls += int(end - begin); });
              return calls == 1000 && num_threads() == 1 ? 0 : 1;
            }),
            0);
  EXPECT_EQ(num_threads(), 4);
}

#if !SLX_SANITIZED  // sanitizers need extra memory per thread
TEST(ThreadPool, ThreadThatCannotStartIsAnError) {
  EXPECT_EQ(status_of_child([] {
              int64_t pages = 0;  // room for the stacks of some threads
              std::ifstream("/proc/self/statm") >> pages;
              const rlim_t limit = static_cast<rlim_t>(pages * getpagesize()) + (64 << 20);
              const rlimit memory{limit, limit};
              if (setrlimit(RLIMIT_AS, &memory) != 0) return 2;
              try {
                set_num_threads(500);
                return 3;
              } catch (const Error& e) {
                if (e.code() != ErrorCode::kEnvironment) return 4;
              }
              int calls = 0;
              parallel_for(9, 1, [&](int64_t begin, int64_t end) { calls += int(end - begin); });
              return calls == 9 ? 0 : 5;
            }),
            0);
}
#endif

TEST(File, OutputAppearsOnlyOnCommit) {
  const auto path = (std::filesystem::temp_directory_path() / "slimexx_base_test.txt").string();
  std::filesystem::remove(path);
  {
    OutputFile file(path);
    file.write("half");
  }
  EXPECT_FALSE(path_exists(path));
  write_file_atomic(path, "whole");
  EXPECT_EQ(read_text_file(path), "whole");
  EXPECT_THROW(read_text_file(path, 3), Error);
  InputFile input(path);
  char buffer[16];
  EXPECT_THROW(input.read_at(2, buffer, 9), Error);
  EXPECT_THROW(InputFile("/tmp"), Error);
  EXPECT_THROW(InputFile("/dev/zero"), Error);
  std::filesystem::remove(path);
}

TEST(File, WrongNameOfAnInputIsNoFaultOfTheMachine) {
  for (const std::string& path :
       {std::string("/nowhere/at/all"), std::string("/dev/null/below"), std::string(300, 'x')}) {
    try {
      InputFile file(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput) << path;
    }
  }
}

// A rename would replace anything at the path.
TEST(File, OutputReplacesFilesOnly) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / fmt::format("slimexx_output_{}", getpid());
  fs::create_directories(folder / "folder");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const char* name : {"folder", "pipe"}) {
    try {
      OutputFile file(folder / name);
      ADD_FAILURE() << name << " is taken for a file";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInput);
      EXPECT_EQ(e.where(), folder / name);
    }
  }
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  write_file_atomic(folder / "file", "old");
  fs::create_symlink("file", folder / "link");
  write_file_atomic(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text_file(folder / "file"), "new");
  fs::create_symlink("absent", folder / "dangling");
  write_file_atomic(folder / "dangling", "new");
  EXPECT_EQ(read_text_file(folder / "dangling"), "new");
  try {
    OutputFile file(folder / "absent" / "file");
    ADD_FAILURE() << "made a file in no folder";
  } catch (const Error& e) {
    EXPECT_EQ(e.where(), folder / "absent" / "file");
  }
  fs::remove_all(folder);
}

TEST(Strings, NearestNameAndUtf8) {
  EXPECT_EQ(nearest_name("trian", {"train", "eval"}), "train");
  EXPECT_EQ(nearest_name("zzzzzz", {"train", "eval"}), std::nullopt);
  EXPECT_TRUE(is_valid_utf8("caf\xC3\xA9"));
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));
  EXPECT_EQ(replace_invalid_utf8("a\xE2\x82z\xFF"), "a\xEF\xBF\xBDz\xEF\xBF\xBD");
  EXPECT_EQ(format_count(151552), "151,552");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
}

}  // namespace
}  // namespace slimexx
