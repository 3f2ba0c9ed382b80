// Serialises facts for the other ranks.
#pragma once
#include <string>

#include "slimexx/doctor/facts.h"

namespace slimexx::doctor {

std::string pack_facts(const RankFacts& facts);
RankFacts unpack_facts(const std::string& bytes);

}  // namespace slimexx::doctor
