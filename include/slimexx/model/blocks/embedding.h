// The embedding: a row of the table for each token.
#pragma once
#include <cstdint>

#include "slimexx/model/parameters.h"

namespace slimexx::model {

class ParameterList;

struct EmbeddingSpec {
  int64_t hidden_size = 0, vocab_size = 0;
  bool is_head_too = false;  // tied: the head's product writes its gradient first
};

ParameterId declare(ParameterList& list, const EmbeddingSpec& spec);

}  // namespace slimexx::model
