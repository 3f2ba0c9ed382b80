#include "reward/data_sets.h"

#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

struct DataSet {
  std::string_view part, grader;
};
// The first entry whose `part` occurs in the name of the data set applies.
constexpr DataSet kDataSets[] = {
    {"dapo", "dapo"},     {"gpqa", "gpqa"},   {"mmlu", "gpqa"},       {"deepscale", "deepscaler"},
    {"gsm", "math"},      {"aime", "math"},   {"amc", "math"},        {"minerva", "math"},
    {"olympiad", "math"}, {"numina", "math"}, {"prime_math", "math"}, {"math", "math"},
    {"hotpot", "f1"},     {"triviaqa", "f1"}, {"squad", "f1"},        {"http", "remote"},
    {"judge", "remote"},
};

}  // namespace

std::string grader_of_data_set(std::string_view name) {
  const std::string lower = to_lower_ascii(name);
  for (const DataSet& set : kDataSets)
    if (lower.find(set.part) != std::string::npos) return std::string(set.grader);
  return "";
}

}  // namespace slimexx::reward
