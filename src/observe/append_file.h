// Files that grow by complete records: opened for appending and written without buffering.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::observe {

int open_append(const std::string& path);
void append_all(int fd, const std::string& path, std::string_view data);
void close_append(int fd);

// Whether `path` still names the open file. Writes to a removed or replaced file would be lost.
bool is_in_place(int fd, const std::string& path);

// Overwrites the file's content with `text` in place, padded with spaces to the old size. For a
// last message when no new file can be created. Throws Error(kEnvironment).
void overwrite(const std::string& path, std::string text);

}  // namespace slimexx::observe
