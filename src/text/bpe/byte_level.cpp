#include "text/bpe/byte_level.h"

#include <array>

#include "slimexx/base/strings.h"

namespace slimexx::text {
namespace {

constexpr uint32_t kAlphabetEnd = 256 + 68;

struct Alphabet {
  std::array<uint32_t, 256> character{};
  std::array<int, kAlphabetEnd> byte{};
  std::array<std::string, 256> utf8;
};

bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t character = stands_for_itself(byte) ? byte : next++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int>(byte);
    append_utf8(alphabet.utf8[byte], character);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet instance = make_alphabet();
  return instance;
}

}  // namespace

uint32_t byte_to_character(uint8_t byte) { return alphabet().character[byte]; }

std::string map_bytes(std::string_view text) {
  const Alphabet& table = alphabet();
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (const char c : text) out += table.utf8[static_cast<uint8_t>(c)];
  return out;
}

std::optional<std::string> unmap_bytes(std::string_view mapped) {
  const Alphabet& table = alphabet();
  std::string out;
  for (size_t position = 0; position < mapped.size();) {
    const uint32_t character = next_code_point(mapped, position);
    if (character >= kAlphabetEnd || table.byte[character] < 0) return std::nullopt;
    out += static_cast<char>(table.byte[character]);
  }
  return out;
}

}  // namespace slimexx::text
