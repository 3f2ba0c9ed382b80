#include "slimexx/reward/remote_service.h"

#include <curl/curl.h>

#include <memory>
#include <new>

#include "reward/remote/curl_start.h"

namespace slimexx::reward {
namespace {

constexpr long kPatienceMs = 5000;

struct EasyClose {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};

}  // namespace

std::string find_service_fault(const std::string& rm_url) {
  initialize_curl();
  const std::unique_ptr<CURL, EasyClose> easy(curl_easy_init());
  if (!easy) throw std::bad_alloc();
  char detail[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(easy.get(), CURLOPT_URL, rm_url.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy.get(), CURLOPT_CONNECT_ONLY, 1L);
  curl_easy_setopt(easy.get(), CURLOPT_CONNECTTIMEOUT_MS, kPatienceMs);
  curl_easy_setopt(easy.get(), CURLOPT_ERRORBUFFER, detail);
  const CURLcode code = curl_easy_perform(easy.get());
  if (code == CURLE_OK) return "";
  return detail[0] != 0 ? detail : curl_easy_strerror(code);
}

}  // namespace slimexx::reward
