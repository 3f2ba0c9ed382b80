// Standard output for the results of verbs. A failed write ends the verb.
#pragma once
#include <fmt/core.h>

#include <exception>
#include <string_view>
#include <utility>

namespace slimexx::cli {

// The reader of the pipe closed it, as `head` does after its lines; not an error of the verb.
class ReaderGone : public std::exception {
 public:
  const char* what() const noexcept override { return "the reader of stdout closed the pipe"; }
};

void write_stdout(std::string_view text);
// Passes all text written so far to the system. Call it after the last text.
void flush_stdout();

template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  write_stdout(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace slimexx::cli
