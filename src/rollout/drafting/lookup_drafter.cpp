#include "rollout/drafting/lookup_drafter.h"

#include <algorithm>

#include "slimexx/base/check.h"

namespace slimexx::rollout {
namespace {

uint64_t hash_run(std::span<const TokenId> run) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const TokenId token : run) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

std::span<const TokenId> LookupDrafter::Text::tokens() const {
  if (running == nullptr) return finished;
  return {running->tokens.data(), static_cast<size_t>(running->num_known())};
}

void LookupDrafter::start(const Sequence* sequence) {
  const RandomName& name = sequence->request.name;
  Group& group = groups_[{name.seed, name.group}];
  group.texts.push_back({.running = sequence, .finished = {}});
  ++group.num_running;
}

void LookupDrafter::finish(const Sequence* sequence) {
  const RandomName& name = sequence->request.name;
  const auto group = groups_.find({name.seed, name.group});
  SLX_CHECK(group != groups_.end(), "unknown request {}", sequence->request.id);
  auto& texts = group->second.texts;
  const auto text = std::ranges::find(texts, sequence, &Text::running);
  SLX_CHECK(text != texts.end(), "unknown request {}", sequence->request.id);
  if (--group->second.num_running == 0) {
    groups_.erase(group);
    return;
  }
  const auto tokens = text->tokens();
  text->finished.assign(tokens.begin(), tokens.end());
  text->running = nullptr;
}

void LookupDrafter::index_new_tokens(Group& group) {
  for (uint32_t i = 0; i < group.texts.size(); ++i) {
    Text& text = group.texts[i];
    const auto tokens = text.tokens();
    for (size_t& next = text.num_indexed; next < tokens.size(); ++next)
      for (size_t l = 0; l < kLengths.size(); ++l)
        if (next >= kLengths[l])
          group.places[l][hash_run(tokens.subspan(next - kLengths[l], kLengths[l]))] = {
              i, static_cast<uint32_t>(next)};
  }
}

std::vector<TokenId> LookupDrafter::guess(const Sequence& sequence, int64_t most) {
  const RandomName& name = sequence.request.name;
  Group& group = groups_.at({name.seed, name.group});
  const std::span<const TokenId> own = sequence.tokens;
  if (most < 1) return {};
  index_new_tokens(group);
  for (size_t l = 0; l < kLengths.size(); ++l) {
    if (own.size() < kLengths[l]) continue;
    const auto run = own.last(kLengths[l]);
    const auto found = group.places[l].find(hash_run(run));
    if (found == group.places[l].end()) continue;
    const auto [text, next] = found->second;
    const auto tokens = group.texts[text].tokens();
    // Different runs may share a hash.
    if (!std::ranges::equal(tokens.subspan(next - kLengths[l], kLengths[l]), run)) continue;
    const auto rest = tokens.subspan(next);
    const auto n = std::min<int64_t>(most, std::ssize(rest));
    return {rest.begin(), rest.begin() + n};
  }
  return {};
}

}  // namespace slimexx::rollout
