// The alphabet of byte-level BPE: each byte is written as one printable character, as in GPT-2's
// vocabulary files. Printable Latin-1 bytes stand for themselves, the other 68 become U+0100,
// U+0101, ... in byte order.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slimexx::text {

uint32_t byte_to_character(uint8_t byte);

// Writes the bytes of `text` in that alphabet.
std::string map_bytes(std::string_view text);

// The bytes that `mapped` (valid UTF-8) stands for; nullopt if it holds any other character.
std::optional<std::string> unmap_bytes(std::string_view mapped);

}  // namespace slimexx::text
