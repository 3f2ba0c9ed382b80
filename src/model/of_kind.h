// A layer's parameters, gradients and tape are variants with one alternative per kind of block.
// These functions return the alternative that belongs to a block's spec.
#pragma once
#include <variant>

#include "slimexx/model/layer.h"

namespace slimexx::model {

template <class T, class Spec, class... Kinds>
auto& of_kind(const Spec&, const std::variant<Kinds...>& parameters) {
  return std::get<typename Spec::template Parameters<T>>(parameters);
}
template <class Spec, class... Kinds>
auto& tape_of_kind(const Spec&, const std::variant<Kinds...>& tape) {
  return std::get<typename Spec::Tape>(tape);
}
template <class Spec, class... Kinds>
auto& tape_of_kind(const Spec&, std::variant<Kinds...>& tape) {
  return std::get<typename Spec::Tape>(tape);
}

}  // namespace slimexx::model
