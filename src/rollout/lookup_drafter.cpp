#include "rollout/lookup_drafter.h"

#include <algorithm>

#include "slimexx/base/check.h"

namespace slimexx::rollout {
namespace {

struct Match {
  size_t length = 0;
  std::span<const TokenId> rest;  // what follows it
};

// The latest of the longest matches of the end of `tokens` within `text`, with something behind it,
// if it is longer than `best`.
Match find_longer(std::span<const TokenId> tokens, std::span<const TokenId> text, Match best) {
  const TokenId last = tokens.back();
  for (size_t end = text.size() - 1; end > 0; --end) {
    if (text[end - 1] != last) continue;
    const size_t most = std::min({end, tokens.size(), kLongestMatch});
    size_t length = 1;
    while (length < most && text[end - 1 - length] == tokens[tokens.size() - 1 - length]) ++length;
    if (length > best.length) best = {length, text.subspan(end)};
    if (best.length == kLongestMatch) break;
  }
  return best;
}

}  // namespace

std::vector<TokenId> look_up(std::span<const TokenId> tokens,
                             std::span<const std::span<const TokenId>> texts, int64_t most) {
  if (tokens.empty()) return {};
  Match best{kShortestMatch - 1, {}};
  best = find_longer(tokens, tokens, best);
  for (const std::span<const TokenId> text : texts)
    if (!text.empty()) best = find_longer(tokens, text, best);
  const auto n = std::min<int64_t>(most, std::ssize(best.rest));
  return {best.rest.begin(), best.rest.begin() + n};
}

void LookupDrafter::start(const Sequence* sequence) {
  const RandomName& name = sequence->request.name;
  groups_[{name.seed, name.group}].running.push_back(sequence);
}

void LookupDrafter::finish(const Sequence* sequence) {
  const RandomName& name = sequence->request.name;
  const auto group = groups_.find({name.seed, name.group});
  SLX_CHECK(group != groups_.end() && std::erase(group->second.running, sequence) == 1,
            "request {} is not here", sequence->request.id);
  if (group->second.running.empty())
    groups_.erase(group);
  else
    group->second.finished.push_back(sequence->tokens);
}

std::vector<TokenId> LookupDrafter::guess(const Sequence& sequence, int64_t most) const {
  const RandomName& name = sequence.request.name;
  const Group& group = groups_.at({name.seed, name.group});
  std::vector<std::span<const TokenId>> texts;
  for (const Sequence* other : group.running)
    if (other != &sequence)
      texts.emplace_back(other->tokens.data(), static_cast<size_t>(other->num_known()));
  for (const std::vector<TokenId>& other : group.finished) texts.emplace_back(other);
  return look_up(sequence.tokens, texts, most);
}

}  // namespace slimexx::rollout
