#include "io/foreign_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "slimexx/base/shell.h"
#include "slimexx/base/strings.h"

namespace slimexx::io {
namespace {

using Found = std::optional<ForeignFormat>;

// A binary format, recognised by its first bytes. In `command`, $IN stands for the file and $OUT
// for the JSON lines to convert it to.
struct Magic {
  std::string_view bytes, what, command;
};

// Each command is one line, because a hint's lines are indented and Python would reject that.
constexpr std::string_view kParquetCommand =
    "python3 -c 'import json, sys, pyarrow.parquet as p; [print(json.dumps(row, default=str)) for "
    "row in p.read_table(sys.argv[1]).to_pylist()]' $IN > $OUT";
constexpr std::string_view kArrowFileCommand =
    "python3 -c 'import json, sys, pyarrow as a; [print(json.dumps(row, default=str)) for row in "
    "a.ipc.open_file(sys.argv[1]).read_all().to_pylist()]' $IN > $OUT";
constexpr std::string_view kArrowStreamCommand =
    "python3 -c 'import json, sys, pyarrow as a; [print(json.dumps(row, default=str)) for row in "
    "a.ipc.open_stream(sys.argv[1]).read_all().to_pylist()]' $IN > $OUT";
constexpr std::string_view kListCommand =
    "python3 -c 'import json, sys; [print(json.dumps(row)) for row in "
    "json.load(open(sys.argv[1]))]' $IN > $OUT";
constexpr std::string_view kCsvCommand =
    "python3 -c 'import csv, json, sys; [print(json.dumps(row)) for row in "
    "csv.DictReader(open(sys.argv[1], newline=\"\"), delimiter=\"$SEP\")]' $IN > $OUT";

using namespace std::string_view_literals;
constexpr std::array kMagics{
    Magic{"PAR1"sv, "a parquet file", kParquetCommand},
    Magic{"ARROW1"sv, "an Arrow file", kArrowFileCommand},
    Magic{"\xFF\xFF\xFF\xFF"sv, "an Arrow stream", kArrowStreamCommand},
    Magic{"\xFD"
          "7zXZ\0"sv,
          "compressed with xz", "xz -dc $IN > $OUT"},
    Magic{"BZh"sv, "compressed with bzip2", "bzip2 -dc $IN > $OUT"},
    Magic{"\x28\xB5\x2F\xFD"sv, "compressed with zstd, but its name does not end in .zst",
          "zstd -dc $IN > $OUT"},
    Magic{"\x04\x22\x4D\x18"sv, "compressed with lz4", "lz4 -dc $IN > $OUT"},
    Magic{"PK\x03\x04"sv, "a zip archive (such as an .xlsx workbook)", "unzip $IN"},
    Magic{"7z\xBC\xAF\x27\x1C"sv, "a 7z archive", "7z x $IN"},
    Magic{"SQLite format 3\0"sv, "an SQLite database",
          "sqlite3 -json $IN 'select * from TABLE' | jq -c '.[]' > $OUT"},
    Magic{"\x89HDF"sv, "an HDF5 file", ""},
    Magic{"%PDF-"sv, "a PDF document", ""},
};

void replace_all(std::string& text, std::string_view word, const std::string& by) {
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
}

// data.jsonl.xz and data.parquet become data.jsonl.
std::string converted_name(const std::string& path) {
  std::filesystem::path name(path);
  name.replace_extension();
  if (name.extension() != ".jsonl") name += ".jsonl";
  return name == path ? path + ".new.jsonl" : name.string();
}

std::string make_command(std::string_view command, const std::string& path) {
  std::string text(command);
  replace_all(text, "$OUT", quote_for_shell(converted_name(path)));
  replace_all(text, "$IN", quote_for_shell(path));
  return text;
}

Found make_format(std::string_view what, std::string_view command, const std::string& path) {
  const std::string hint = command.empty()
                               ? "convert its rows to JSON lines"
                               : "convert it to JSON lines:\n" + make_command(command, path);
  return ForeignFormat{fmt::format("the file is {}", what), hint};
}

Found find_binary(std::string_view start, const std::string& path) {
  for (const Magic& magic : kMagics)
    if (start.starts_with(magic.bytes)) return make_format(magic.what, magic.command, path);
  constexpr size_t kTarMark = 257;
  if (start.size() > kTarMark && start.substr(kTarMark).starts_with("ustar"))
    return make_format("a tar archive", "tar -xf $IN", path);
  return std::nullopt;
}

// UTF-16 or UTF-32 text, with or without a byte-order mark.
Found find_wide_text(std::string_view start, const std::string& path) {
  struct Encoding {
    std::string_view start, name;
  };
  // UTF-32 comes first: its byte-order mark begins with that of UTF-16.
  constexpr std::array kEncodings{
      Encoding{"\xFF\xFE\0\0"sv, "UTF-32"}, Encoding{"\0\0\xFE\xFF"sv, "UTF-32"},
      Encoding{"{\0\0\0"sv, "UTF-32LE"},    Encoding{"\0\0\0{"sv, "UTF-32BE"},
      Encoding{"\xFF\xFE"sv, "UTF-16"},     Encoding{"\xFE\xFF"sv, "UTF-16"},
      Encoding{"{\0"sv, "UTF-16LE"},        Encoding{"\0{"sv, "UTF-16BE"},
      Encoding{"[\0"sv, "UTF-16LE"},        Encoding{"\0["sv, "UTF-16BE"},
  };
  for (const Encoding& encoding : kEncodings) {
    if (!start.starts_with(encoding.start)) continue;
    return make_format(
        fmt::format("text in {}, not in UTF-8", encoding.name),
        fmt::format("iconv -f {} -t UTF-8 $IN | sed '1s/^\\xEF\\xBB\\xBF//' > $OUT", encoding.name),
        path);
  }
  return std::nullopt;
}

Found find_markup(std::string_view line) {
  const std::string lower = to_lower_ascii(line.substr(0, 64));
  const bool is_page = lower.starts_with("<!doctype html") || lower.starts_with("<html");
  if (!is_page && !lower.starts_with("<?xml")) return std::nullopt;
  return ForeignFormat{
      fmt::format("the file is {}, not the data", is_page ? "an HTML page" : "an XML document"),
      "fetch the file itself: on the Hugging Face hub, replace /blob/ in the URL of its page by "
      "/resolve/, or run\n"
      "hf download --repo-type dataset OWNER/NAME FILE --local-dir data"};
}

// Recognises one JSON value over several lines, or one list of all rows. Gives nothing for a list
// that does not start with an object and for text that ends too early to tell.
Found find_whole_json(std::string_view line, std::string_view rest, const std::string& path) {
  const auto first_of = [](std::string_view text) {
    text = trim(text);
    return text.empty() ? '\0' : text[0];
  };
  if (line.starts_with('[')) {
    const char inside = first_of(line.substr(1));
    const bool is_list = inside == '{' || (inside == '\0' && first_of(rest) == '{');
    if (!is_list || (line.ends_with(']') && !trim(rest).empty())) return std::nullopt;
    return make_format("one JSON list, not one JSON object per line", kListCommand, path);
  }
  const size_t next = rest.find_first_not_of("\r\n");
  if (!line.starts_with('{') || next == rest.npos) return std::nullopt;
  const bool is_open = line.ends_with('{') || line.ends_with('[') || line.ends_with(',');
  const bool is_indented = rest[next] == ' ' || rest[next] == '\t';
  if (line != "{" && !(is_open && is_indented)) return std::nullopt;
  return make_format("JSON over several lines, not one JSON object per line",
                     "jq -c . $IN > $OUT   # '.KEY[]' instead of '.' if the rows are a list in KEY",
                     path);
}

// Splits a line at separators outside quotes.
std::vector<std::string_view> split_fields(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i <= line.size(); ++i) {
    if (i < line.size() && line[i] == '"') quoted = !quoted;
    if (i < line.size() && (quoted || line[i] != separator)) continue;
    fields.push_back(line.substr(begin, i - begin));
    begin = i + 1;
  }
  return fields;
}

// Whether the field looks like a column name: short, without JSON punctuation, perhaps in quotes.
bool is_column_name(std::string_view field) {
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
    field = field.substr(1, field.size() - 2);
  constexpr size_t kLongest = 64;
  return !field.empty() && field.size() <= kLongest && trim(field) == field &&
         field.find_first_of("{}[]\"<>:!?") == field.npos;
}

Found find_table(std::string_view line, const std::string& path) {
  const std::string lower = to_lower_ascii(path);
  const bool is_named = lower.ends_with(".csv") || lower.ends_with(".tsv");
  if (line.empty() || line[0] == '{' || line[0] == '[') return std::nullopt;
  for (const char separator : {'\t', ',', ';'}) {
    const auto fields = split_fields(line, separator);
    if (fields.size() < 2) continue;
    if (!is_named && !std::ranges::all_of(fields, is_column_name)) continue;
    std::string command(kCsvCommand);
    replace_all(command, "$SEP", separator == '\t' ? "\\t" : std::string(1, separator));
    return make_format(separator == '\t' ? "a table with tabs (TSV)" : "a table (CSV)", command,
                       path);
  }
  if (!is_named) return std::nullopt;
  std::string command(kCsvCommand);
  replace_all(command, "$SEP", ",");
  return make_format("a table (CSV)", command, path);
}

}  // namespace

Found find_foreign_format(std::string_view start, const std::string& path) {
  if (auto found = find_binary(start, path)) return found;
  if (auto found = find_wide_text(start, path)) return found;
  const size_t begin = std::min(start.find_first_not_of(" \t\r\n"), start.size());
  const size_t end = std::min(start.find('\n', begin), start.size());
  const std::string_view line = trim(start.substr(begin, end - begin));
  if (auto found = find_markup(line)) return found;
  if (auto found = find_whole_json(line, start.substr(end), path)) return found;
  return find_table(line, path);
}

}  // namespace slimexx::io
