// Files that grow by whole records: opened for appending, written without a buffer of ours.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::observe {

int open_append(const std::string& path);
void append_all(int fd, const std::string& path, std::string_view data);
void close_append(int fd);

// Whether the open file is still the one of that name: writes to one that was removed or replaced
// are lost.
bool is_in_place(int fd, const std::string& path);

// Writes `text` over the file's content in place, filled up with spaces to its old size. For a last
// message where no new file can be made; throws Error(kEnvironment).
void overwrite(const std::string& path, std::string text);

}  // namespace slimexx::observe
