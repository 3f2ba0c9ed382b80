#include <algorithm>

#include "slimexx/base/check.h"
#include "slimexx/observe/console.h"

namespace slimexx::observe {
namespace {

std::string pad(const std::string& text, int64_t width, bool right) {
  const std::string gap(static_cast<size_t>(std::max<int64_t>(0, width - display_width(text))),
                        ' ');
  return right ? gap + text : text + gap;
}

}  // namespace

std::string format_table(const std::vector<TableColumn>& columns,
                         const std::vector<std::vector<std::string>>& rows) {
  std::vector<int64_t> widths;
  std::vector<std::vector<std::string>> cells(rows.size());
  std::vector<std::string> headers;
  for (size_t c = 0; c < columns.size(); ++c) {
    const TableColumn& column = columns[c];
    headers.push_back(fit_text(column.header, column.max_width));
    widths.push_back(display_width(headers[c]));
    for (size_t r = 0; r < rows.size(); ++r) {
      SLX_CHECK_EQ(rows[r].size(), columns.size());
      cells[r].push_back(fit_text(rows[r][c], column.max_width, column.keep_tail));
      widths[c] = std::max(widths[c], display_width(cells[r][c]));
    }
  }
  std::string rule;
  const auto line = [&](const std::vector<std::string>& texts) {
    std::string out;
    for (size_t c = 0; c < columns.size(); ++c)
      out += (c == 0 ? "" : "  ") + pad(texts[c], widths[c], columns[c].right_align);
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  for (size_t c = 0; c < columns.size(); ++c) {
    rule += c == 0 ? "" : "  ";
    for (int64_t i = 0; i < widths[c]; ++i) rule += "\xE2\x94\x80";  // U+2500, a horizontal stroke
  }
  std::string out = line(headers) + rule + "\n";
  for (const auto& row : cells) out += line(row);
  return out;
}

}  // namespace slimexx::observe
