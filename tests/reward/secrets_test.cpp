#include "reward/remote/secrets.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace slimexx::reward {
namespace {

std::string hide(const std::string& address, const std::string& text) {
  return hide_all(text, list_secrets(address));
}

TEST(Secrets, AnswersThatRepeatThemAreMended) {
  const std::string address = "http://user:p%40ss@host/r?key=t0ken&mode=fast#part";
  EXPECT_EQ(hide(address, "no entry for user"), "no entry for ***");
  EXPECT_EQ(hide(address, "p%40ss and p@ss are wrong"), "*** and *** are wrong");
  EXPECT_EQ(hide(address, "Cannot POST /r?key=t0ken&mode=fast"), "Cannot POST /r?***");
  EXPECT_EQ(hide(address, "bad key t0ken"), "bad key ***");
  EXPECT_EQ(hide("http://host/r", "bad key t0ken"), "bad key t0ken");
  EXPECT_EQ(hide("http://a:b@host/r", "a bad body"), "a bad body");  // too short to tell
}

TEST(Secrets, ProxiesHaveSome) {
  ASSERT_EQ(setenv("https_proxy", "http://me:pr0xy@proxy:3128", 1), 0);
  EXPECT_EQ(hide("http://host/r", "Unsupported proxy syntax in 'me:pr0xy@proxy:3128'"),
            "Unsupported proxy syntax in '***@proxy:3128'");
  unsetenv("https_proxy");
}

}  // namespace
}  // namespace slimexx::reward
