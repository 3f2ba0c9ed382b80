#include "slimexx/base/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "slimexx/base/log.h"
#include "slimexx/base/thread_rank.h"

namespace slimexx {
namespace {

// Makes stderr a terminal during its lifetime.
class Terminal {
 public:
  Terminal() : saved_(dup(STDERR_FILENO)), master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_EQ(grantpt(master_), 0);
    EXPECT_EQ(unlockpt(master_), 0);
    const int slave = open(ptsname(master_), O_RDWR | O_NOCTTY);
    EXPECT_GE(slave, 0);
    dup2(slave, STDERR_FILENO);
    close(slave);
  }
  ~Terminal() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(master_);
  }
  std::string read_all() const {
    std::fflush(stderr);
    fcntl(master_, F_SETFL, O_NONBLOCK);
    std::string text;
    char part[4096];
    for (ssize_t n; (n = read(master_, part, sizeof part)) > 0;)
      text.append(part, static_cast<size_t>(n));
    return text;
  }

 private:
  int saved_, master_;
};

// Returns the output of a new log.
std::string log_something(int rank) {
  const ThreadRankScope scope(rank);
  const Terminal terminal;
  log_warn("something");
  return terminal.read_all();
}

TEST(Terminal, LogHasColoursThatTheEnvironmentTurnsOff) {
  setenv("TERM", "xterm-256color", 1);
  unsetenv("NO_COLOR");
  EXPECT_NE(log_something(901).find("\x1b["), std::string::npos);
  setenv("NO_COLOR", "1", 1);
  const std::string plain = log_something(902);
  EXPECT_NE(plain.find("something"), std::string::npos);
  EXPECT_EQ(plain.find('\x1b'), std::string::npos) << plain;
  setenv("NO_COLOR", "", 1);  // an empty value counts as not set
  EXPECT_NE(log_something(903).find("\x1b["), std::string::npos);
  for (const char* term : {"dumb", ""}) {
    *term == '\0' ? unsetenv("TERM") : setenv("TERM", term, 1);
    EXPECT_EQ(log_something(904 + *term).find('\x1b'), std::string::npos) << term;
  }
}

TEST(Terminal, FileIsNone) {
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  {
    const Terminal terminal;
    EXPECT_TRUE(is_terminal());
    EXPECT_TRUE(wants_colour());
  }
  const int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
  dup2(null, STDERR_FILENO);
  const bool found = is_terminal() || wants_colour();
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(null);
  EXPECT_FALSE(found);
}

}  // namespace
}  // namespace slimexx
