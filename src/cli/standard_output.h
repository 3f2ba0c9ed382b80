// Standard output, where verbs print their results. What cannot be written there ends the verb.
#pragma once
#include <fmt/core.h>

#include <exception>
#include <string_view>
#include <utility>

namespace slimexx::cli {

// The reader of the pipe has gone, as `head` does once it has its lines: nobody wants the rest.
class ReaderGone : public std::exception {
 public:
  const char* what() const noexcept override { return "the reader of stdout has gone"; }
};

void write_stdout(std::string_view text);
// Behind the last text: what was written is in the system's hands.
void flush_stdout();

template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  write_stdout(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace slimexx::cli
