#include "io/foreign_format.h"

#include "io/temp_dir.h"
#include "slimexx/io/lines.h"

namespace slimexx::io {
namespace {

using namespace std::string_literals;

struct Case {
  std::string content, name, what, hint;
};

TEST(ForeignFormat, NamesTheFileAndTheCommandThatConvertsIt) {
  const TempDir dir;
  const std::string wide = "{\"a\": 1}\n";
  std::string utf16le, utf16be, utf32le;
  for (const char c : wide) {
    utf16le += c + "\0"s;
    utf16be += "\0"s + c;
    utf32le += c + "\0\0\0"s;
  }
  const std::string tar = std::string(257, 'a') + "ustar\0"s;
  const std::vector<Case> cases = {
      {"PAR1\x15\x04\x15\x10", "a.parquet", "a parquet file", "a.jsonl"},
      {"PAR1\nx", "t.jsonl", "a parquet file", "pyarrow.parquet"},
      {"ARROW1\0\0"s, "a.arrow", "an Arrow file", "open_file"},
      {"\xFF\xFF\xFF\xFF\x10\0"s, "a.arrow", "an Arrow stream", "open_stream"},
      {"\xFD"
       "7zXZ\0\0"s,
       "rows.jsonl.xz", "compressed with xz", "xz -dc"},
      {"BZh91AY&SY", "rows.jsonl.bz2", "compressed with bzip2", "bzip2 -dc"},
      {"\x28\xB5\x2F\xFD\x24", "rows.zstd", "compressed with zstd", "zstd -dc"},
      {"\x04\x22\x4D\x18", "rows.lz4", "compressed with lz4", "lz4 -dc"},
      {"PK\x03\x04\n\0"s, "rows.zip", "a zip archive", "unzip"},
      {"7z\xBC\xAF\x27\x1C", "rows.7z", "a 7z archive", "7z x"},
      {tar, "rows.tar", "a tar archive", "tar -xf"},
      {"SQLite format 3\0"s, "rows.db", "an SQLite database", "sqlite3"},
      {"\x89HDF\r\n", "rows.h5", "an HDF5 file", "JSON lines"},
      {"\xFF\xFE" + utf16le, "w.jsonl", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
      {"\xFE\xFF" + utf16be, "w.jsonl", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
      {utf16le, "w.jsonl", "UTF-16LE", "iconv -f UTF-16LE"},
      {utf16be, "w.jsonl", "UTF-16BE", "iconv -f UTF-16BE"},
      {"\xFF\xFE\0\0"s + utf32le, "w.jsonl", "UTF-32", "iconv -f UTF-32 "},
      {utf32le, "w.jsonl", "UTF-32LE", "iconv -f UTF-32LE"},
      {"<!DOCTYPE html>\n<html>", "p.jsonl", "an HTML page", "hf download"},
      {"\n  <HTML lang=en>", "p.jsonl", "an HTML page", "/resolve/"},
      {"<?xml version=\"1.0\"?><Error>", "p.jsonl", "an XML document", "hf download"},
      {"[\n  {\"prompt\": \"a\"}\n]\n", "l.json", "one JSON list", "json.load"},
      {"[{\"prompt\": \"a\"}, {\"prompt\": \"b\"}]", "l.json", "one JSON list", "json.load"},
      {"[{\"prompt\": \"a\"},\n{\"prompt\": \"b\"}]\n", "l.json", "one JSON list", "json.load"},
      {"\n\n[\n{}]", "l.json", "one JSON list", "json.load"},
      {"{\n  \"prompt\": \"a\"\n}\n", "o.json", "JSON over several lines", "jq -c"},
      {"{\n\"prompt\": \"a\"\n}\n", "o.json", "JSON over several lines", "jq -c"},
      {"{\"data\": [\n  {\"prompt\": \"a\"}\n]}\n", "o.json", "JSON over several lines",
       "'.KEY[]'"},
      {"prompt,label\n1+1,2\n", "t.jsonl", "a table (CSV)", "csv.DictReader"},
      {"\"prompt\",\"label\"\n\"1,1\",2\n", "t.jsonl", "a table (CSV)", "delimiter=\",\""},
      {"prompt;label\r\na;b\r\n", "t.jsonl", "a table (CSV)", "delimiter=\";\""},
      {"prompt\tlabel\na\tb\n", "t.jsonl", "a table with tabs", "delimiter=\"\\t\""},
      {"What is 1, 2 and 3?,6\n", "t.csv", "a table (CSV)", "csv.DictReader"},
      {"prompt\nWhat?\n", "t.csv", "a table (CSV)", "csv.DictReader"},
      {"PAR1", "my data.parquet", "a parquet file", "my data.jsonl' "},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name + ": " + c.what);
    const std::string path = dir.put(c.name, c.content);
    try {
      LineReader reader(path);
      for (std::string line; reader.next(line);) {
      }
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      EXPECT_NE(error.message().find(c.what), std::string::npos) << error.what();
      if (c.hint != "my data.jsonl' ") {
        EXPECT_NE(error.hint().find(c.hint), std::string::npos) << error.what();
      } else {
        EXPECT_NE(error.hint().find("/my data.parquet' > '"), std::string::npos) << error.what();
      }
      EXPECT_EQ(error.where(), path);
    }
  }
}

// These are JSON lines, some malformed; the line reader reports their errors.
TEST(ForeignFormat, LeavesLinesOfJsonAlone) {
  for (const char* content : {
           "",
           "\n",
           "{}",
           "{\"a\": 1}\n{\"a\": 2}\n",
           "\n\n{\"a\": 1}",
           "  {\"a\": 1}\n",
           "{",
           "[",
           "[1]\n",
           "[]",
           "[\n1\n]",
           "{\"a\": [\n{\"a\": 1}\n",
           "{\"a\": 1,\n{\"a\": 2}\n",
           "[1, 2]\n[3, 4]\n",
           "3\n4\n",
           "\"hello, world\"\n\"x\"\n",
           "Hello, world\n",
           "prompt\nlabel\n",
           "null\n",
           "{\"a\": 1",
           "a{b},c\n",
           "PAR2",
           "BZ\n",
       }) {
    const auto found = find_foreign_format(content, "rows.jsonl");
    EXPECT_FALSE(found) << content << ": " << found->what;
  }
}

}  // namespace
}  // namespace slimexx::io
