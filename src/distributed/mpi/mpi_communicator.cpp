// The ranks of MPI_COMM_WORLD, and the function that the program looks up (distributed/comm/world.h). Only messages are
// used, no reductions, as MPI does not state their order of summation.
#include <mpi.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include "base/fail.h"
#include "base/thread_pool.h"
#include "distributed/comm/communicator.h"
#include "distributed/comm/world.h"

namespace linnet {
namespace {
constexpr size_t kMost = size_t{1} << 30;  // bytes of one MPI message, whose size is an int
constexpr int kTag = 1;
constexpr char kAlive = 0, kEnds = 1;  // what a rank tells the next one

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorKind::kSystem, std::string("MPI: ") + what + ": " + std::string(text, static_cast<size_t>(length)));
}

class MpiWorld {
 public:
  using Outgoing = Communicator::Outgoing;
  using Incoming = Communicator::Incoming;
  using Wait = Communicator::Wait;

  MpiWorld() {
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED) fail_user("this MPI cannot be used by a program with threads");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &beats_), "MPI_Comm_dup");
    pulse_ = start_thread([this] { watch_neighbor(); });
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Returns null, or the message of what `call` has thrown, valid until the next call.
  template <class Call> const char* problem_of(const Call& call) {
    try {
      call();
      return nullptr;
    } catch (const std::exception& error) {
      problem_ = error.what();
      return problem_.c_str();
    }
  }

  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait wait) {
    {
      const std::lock_guard lock(mpi_);
      start(outgoing, incoming);
    }
    wait_for_messages(wait);
  }

  void leave() {
    leaving_ = true;
    pulse_.join();  // the rank before this one is leaving too
    check(MPI_Finalize(), "MPI_Finalize");
  }

 private:
  static constexpr auto kLook = std::chrono::microseconds(50);
  // The interval of heartbeats to the next rank, and the silence after which that rank gives up.
  static constexpr auto kBeat = std::chrono::milliseconds(500), kPatience = std::chrono::seconds(8);

  void start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
    requests_.clear();
    for (const auto& [from, bytes] : incoming)
      in_parts(bytes.size(), [&](size_t first, int count, MPI_Request* request) {
        check(MPI_Irecv(bytes.data() + first, count, MPI_BYTE, from, kTag, MPI_COMM_WORLD, request), "MPI_Irecv");
      });
    for (const auto& [to, bytes] : outgoing)
      in_parts(bytes.size(), [&](size_t first, int count, MPI_Request* request) {
        check(MPI_Isend(bytes.data() + first, count, MPI_BYTE, to, kTag, MPI_COMM_WORLD, request), "MPI_Isend");
      });
  }

  template <class Start> void in_parts(size_t size, const Start& start) {
    for (size_t first = 0; first < size; first += kMost) {
      requests_.emplace_back();
      start(first, static_cast<int>(std::min(kMost, size - first)), &requests_.back());
    }
  }

  bool are_done(std::vector<MPI_Request>& requests) {
    const std::lock_guard lock(mpi_);
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "a message to or from another rank");
    return done != 0;
  }

  // MPI's own wait keeps its processor busy, which other ranks need if there are more ranks than processors. This one
  // yields after a moment, and later sleeps between polls.
  void wait_for_messages(Wait wait) {
    constexpr int kBusy = 2000, kGivingWay = 20000;
    for (int looks = wait == Wait::kPatiently ? kGivingWay : 0; !are_done(requests_); ++looks)
      if (looks >= kBusy) std::this_thread::sleep_for(looks < kGivingWay ? std::chrono::microseconds(0) : kLook);
  }

  // A rank that was stopped, or whose machine is gone, would let the others wait forever. A thread of each rank listens
  // to the one before it, so that a long computation does not look like an end.
  void watch_neighbor() {
    using Clock = std::chrono::steady_clock;
    const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
    char sent = kAlive, heard = kAlive;
    std::vector<MPI_Request> sending{MPI_REQUEST_NULL}, hearing{MPI_REQUEST_NULL};
    bool before_ended = false, told_end = false;
    Clock::time_point last = Clock::now(), beat = last, looked = last;
    try {
      while (!before_ended || !told_end) {
        if (are_done(sending) && !told_end && (Clock::now() >= beat || leaving_)) {
          const std::lock_guard lock(mpi_);
          told_end = leaving_;
          sent = told_end ? kEnds : kAlive, beat = Clock::now() + kBeat;
          check(MPI_Isend(&sent, 1, MPI_CHAR, next, kTag, beats_, &sending[0]), "MPI_Isend");
        }
        if (!before_ended && are_done(hearing)) {
          before_ended = heard == kEnds, last = Clock::now();
          const std::lock_guard lock(mpi_);
          if (!before_ended) check(MPI_Irecv(&heard, 1, MPI_CHAR, before, kTag, beats_, &hearing[0]), "MPI_Irecv");
        }
        // This process or its machine may have been suspended, too.
        if (Clock::now() - looked > kPatience / 4) last = Clock::now();
        looked = Clock::now();
        if (!before_ended && looked - last > kPatience) give_up_on(before);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      while (!are_done(sending)) std::this_thread::sleep_for(kLook);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "linnet: rank %d no longer hears its neighbors: %s\n", rank_, error.what());
      _exit(Communicator::kLostRank);
    }
  }

  [[noreturn]] void give_up_on(int rank) const {
    std::fprintf(stderr,
        "linnet: rank %d has not answered for %d s: it was stopped, or its machine cannot be reached\n", rank,
        static_cast<int>(kPatience / std::chrono::seconds(1)));
    _exit(Communicator::kLostRank);  // mpirun ends the others
  }

  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;
  std::string problem_;
  std::mutex mpi_;  // held around every call of MPI
  MPI_Comm beats_ = MPI_COMM_NULL;
  std::atomic<bool> leaving_ = false;
  std::thread pulse_;
};

MpiWorld* world = nullptr;  // never destroyed: a rank that fails must not wait for the others
}  // namespace
}  // namespace linnet

extern "C" __attribute__((visibility("default"))) const linnet::ModuleWorld* linnet_mpi_open(
    const char* program_version, char* message, size_t message_size) {
  using namespace linnet;
  try {
    if (std::string(program_version) != comm_version())
      fail_user("the MPI module is of another build (", comm_version(), ") than the program (", program_version, ")");
    if (!world) world = new MpiWorld;
  } catch (const std::exception& error) {
    std::snprintf(message, message_size, "%s", error.what());
    return nullptr;
  }
  static const ModuleWorld module{.rank = world->rank(),
      .size = world->size(),
      .exchange =
          [](std::span<const Communicator::Outgoing> outgoing, std::span<const Communicator::Incoming> incoming,
              Communicator::Wait wait) {
            return world->problem_of([&] { world->exchange(outgoing, incoming, wait); });
          },
      .leave = [] { return world->problem_of([] { world->leave(); }); }};
  return &module;
}
