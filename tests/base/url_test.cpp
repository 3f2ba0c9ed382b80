#include "slimexx/base/url.h"

#include <gtest/gtest.h>

#include <utility>

namespace slimexx {
namespace {

TEST(Url, SecretsOfAnAddressAreHidden) {
  const std::pair<const char*, const char*> cases[] = {
      {"http://host:80/path", "http://host:80/path"},
      {"http://user:word@host/path?key=1#part", "http://***@host/path?***"},
      {"https://user@host", "https://***@host"},
      {"http://host/r?key=s3cret", "http://host/r?***"},
      {"http://host/r#part", "http://host/r#***"},
      {"http://user:sl/sh@host/r", "http://***@host/r"},
      {"http://user:a@b@host/r", "http://***@host/r"},
      {"http://user:w?rd@host/r", "http://***@host/r"},
      {"user:word@host/r?key", "***@host/r?***"},
      {"http://[::1]:8080/r?k", "http://[::1]:8080/r?***"},
      {"", ""},
  };
  for (const auto& [address, shown] : cases) EXPECT_EQ(hide_secrets(address), shown);
}

TEST(Url, AddressesInATextAreFound) {
  EXPECT_EQ(hide_secrets_in_text("no 'http://u:p@h/r?k' here, nor \"ftp://u@h\" (x@y?z)"),
            "no 'http://***@h/r?***' here, nor \"ftp://***@h\" (x@y?z)");
  EXPECT_EQ(hide_secrets_in_text("reward.rm_url=https://a:b@h?c d"),
            "reward.rm_url=https://***@h?*** d");
  EXPECT_EQ(hide_secrets_in_text("plain"), "plain");
  EXPECT_EQ(hide_secrets_in_text("http://"), "http://");
}

}  // namespace
}  // namespace slimexx
