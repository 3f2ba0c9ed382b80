#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <string>

#include "build_info.h"
#include "cli/standard_output.h"
#include "cli/verbs.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/model/families.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

constexpr bool has_mpi() {
#ifdef SLX_WITH_MPI
  return true;
#else
  return false;
#endif
}

// Whether the build has CUDA, and the number of GPUs here.
std::string cuda_feature() {
#ifdef SLX_WITH_CUDA
  const int devices = tensor::count_cuda_devices();
  return fmt::format("yes, {} GPU{} on this host", devices, devices == 1 ? "" : "s");
#else
  return "no";
#endif
}

void print_version(const Session& session) {
  if (!session.is_root()) return;
  std::string families;
  for (const auto& family : model::list_families()) {
    families += (families.empty() ? "" : ", ") + family.name;
  }
  const std::string sanitizers = SLX_SANITIZERS;
  print("slimexx {} ({})\n", SLX_VERSION, SLX_REVISION);
  print("build     {}, {}{}\n", SLX_BUILD_TYPE, compiler(),
        sanitizers.empty() ? "" : ", sanitizers " + sanitizers);
  print("features  mpi {}, cuda {}\n", has_mpi() ? "yes" : "no", cuda_feature());
  print("models    {}\n", families);
  print("launch    {} rank{}, {} thread{} each\n", session.world.size(),
        session.world.size() == 1 ? "" : "s", num_threads(), num_threads() == 1 ? "" : "s");
}

}  // namespace

VerbBody declare_version(CLI::App&) {
  return [](Session& session) { print_version(session); };
}

}  // namespace slimexx::cli
