#include "slimexx/base/thread_rank.h"

namespace slimexx {
namespace {

thread_local int rank_of_thread = 0;

}  // namespace

int thread_rank() { return rank_of_thread; }

ThreadRankScope::ThreadRankScope(int rank) : previous_(rank_of_thread) { rank_of_thread = rank; }
ThreadRankScope::~ThreadRankScope() { rank_of_thread = previous_; }

}  // namespace slimexx
