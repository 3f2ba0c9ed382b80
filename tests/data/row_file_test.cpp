#include "data/row_file.h"

#include <atomic>

#include "data/data_fixture.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/io/lines.h"

namespace slimexx::data {
namespace {

class RowFile : public DataTest {};

TEST_F(RowFile, SlicesAsPythonDoes) {
  std::string content;
  for (int i = 0; i < 10; ++i)
    content += "{\"i\": " + std::to_string(i) + "}\n" + (i == 4 ? " \n\n" : "");
  const std::string path = write_file(content);
  const auto rows_of = [&](const std::string& suffix) {
    std::vector<int64_t> indices;
    for (const Row& row : read_rows(path + suffix)) {
      EXPECT_EQ(parse_json(row.line, "").at("i"), row.index);
      indices.push_back(row.index);
    }
    return indices;
  };
  using Indices = std::vector<int64_t>;
  EXPECT_EQ(rows_of("").size(), 10u);
  EXPECT_EQ(rows_of("@[:]").size(), 10u);
  EXPECT_EQ(rows_of("@[2:4]"), (Indices{2, 3}));
  EXPECT_EQ(rows_of("@[ 8 : ]"), (Indices{8, 9}));
  EXPECT_EQ(rows_of("@[:2]"), (Indices{0, 1}));
  EXPECT_EQ(rows_of("@[-2:]"), (Indices{8, 9}));
  EXPECT_EQ(rows_of("@[:-8]"), (Indices{0, 1}));
  EXPECT_EQ(rows_of("@[-4:-2]"), (Indices{6, 7}));
  EXPECT_EQ(rows_of("@[-100:1]"), (Indices{0}));
  EXPECT_EQ(rows_of("@[9:100]"), (Indices{9}));
  EXPECT_EQ(rows_of("@[5:6]"), (Indices{5}));
  EXPECT_EQ(read_rows(path + "@[5:6]")[0].where, path + ":8") << "blank lines count as lines";
  for (const char* empty : {"@[10:]", "@[4:2]", "@[-2:3]", "@[:0]", "@[:-10]"}) {
    EXPECT_EQ(error_of([&] { rows_of(empty); }).code(), ErrorCode::kInput) << empty;
  }
  for (const char* bad :
       {"@[1]", "@[a:]", "@[1:2:3]", "@[1:2", "@[99999999999999999999:]", "@[1.0:]"}) {
    EXPECT_EQ(error_of([&] { rows_of(bad); }).code(), ErrorCode::kUsage) << bad;
  }
}

TEST_F(RowFile, TakesAFileWhoseNameLooksSliced) {
  const std::string path = write_file("{}\n{}\n", "odd@[0:1]");
  EXPECT_EQ(read_rows(path).size(), 2u);
  EXPECT_EQ(read_rows(path + "@[1:]").size(), 1u);
}

TEST_F(RowFile, ReadsCompressedFiles) {
  const std::string path = (directory_ / "rows.jsonl.zst").string();
  io::LineWriter writer(path);
  writer.write("{\"a\": 1}");
  writer.write("{\"a\": 2}");
  writer.finish();
  const auto rows = read_rows(path + "@[1:]");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].line, "{\"a\": 2}");
}

// Batches contain the rows of the file in order, whatever the number of batches.
TEST_F(RowFile, ComesInBatches) {
  std::string content;
  const std::string text(1 << 20, 'x');
  for (int i = 0; i < 40; ++i) content += "{\"t\": \"" + text + "\"}\n";
  RowReader reader(write_file(content) + "@[1:-1]");
  std::vector<Row> batch;
  std::vector<size_t> sizes;
  int64_t next = 1;
  while (reader.next(batch)) {
    sizes.push_back(batch.size());
    for (const Row& row : batch) EXPECT_EQ(row.index, next++);
  }
  EXPECT_EQ(next, 39);
  EXPECT_EQ(sizes, (std::vector<size_t>{16, 16, 6}));
}

// 64 KiB as .zst: reading further would give nothing more.
TEST_F(RowFile, BlankLinesEnd) {
  const std::string path = (directory_ / "blank.jsonl.zst").string();
  io::LineWriter writer(path);
  for (int i = 0; i < 70; ++i) writer.write(std::string((1 << 20) - 1, ' '));
  writer.finish();
  for (const char* slice : {"", "@[-1:]"}) {
    const Error error = error_of([&] { read_rows(path + slice); });
    EXPECT_NE(error.message().find("blank lines in a row"), std::string::npos) << error.what();
  }
}

TEST_F(RowFile, ReportsTheFirstBadLine) {
  std::string content;
  for (int i = 0; i < 500; ++i) content += i == 137 || i == 402 ? "[1]\n" : "{}\n";
  const std::string path = write_file(content);
  const auto rows = read_rows(path);
  for (const int threads : {1, 4}) {
    set_num_threads(threads);
    const Error error = error_of([&] { for_each_row(rows, [](size_t, const Json&) {}); });
    EXPECT_EQ(error.where(), path + ":138") << threads;
  }
}

TEST_F(RowFile, HashesWhatIsKept) {
  const auto hash_of = [&](const std::string& content, std::vector<uint8_t> keep) {
    RowHash hash;
    const auto rows = read_rows(write_file(content));
    for (size_t i = 0; i < rows.size(); ++i)
      if (keep[i] != 0) hash.add(rows[i]);
    return hash.digits();
  };
  const std::string base = hash_of("{\"a\": 1}\n{\"a\": 2}\n", {1, 1});
  EXPECT_EQ(base.size(), 32u);
  EXPECT_EQ(hash_of("\n{\"a\": 1}\r\n{\"a\": 2}", {1, 1}), base) << "line ends and blank lines";
  EXPECT_NE(hash_of("{\"a\": 2}\n{\"a\": 1}\n", {1, 1}), base);
  EXPECT_NE(hash_of("{\"a\": 1}\n{\"a\": 2}\n", {1, 0}), base);
  EXPECT_NE(hash_of("{\"a\": 1}\n{\"a\": 3}\n", {1, 1}), base);
}

}  // namespace
}  // namespace slimexx::data
