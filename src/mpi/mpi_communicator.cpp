// The ranks of MPI_COMM_WORLD as a Communicator, and the one function that the program looks up (comm/world.h). Of MPI
// it uses messages alone: no reduction, whose order of summation MPI does not state.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/world.h"

namespace linnet {
namespace {

constexpr size_t kMost = size_t{1} << 30;  // bytes of one MPI message, whose size is an int
constexpr int kTag = 1;

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorKind::kSystem, std::string("MPI: ") + what + ": " + std::string(text, static_cast<size_t>(length)));
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator() {
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED) fail_user("this MPI cannot be used by a program with threads");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    requests_.clear();
    for (const auto& [from, bytes] : incoming)
      in_parts(bytes.size(), [&](size_t first, int count, MPI_Request* request) {
        check(MPI_Irecv(bytes.data() + first, count, MPI_BYTE, from, kTag, MPI_COMM_WORLD, request), "MPI_Irecv");
      });
    for (const auto& [to, bytes] : outgoing)
      in_parts(bytes.size(), [&](size_t first, int count, MPI_Request* request) {
        check(MPI_Isend(bytes.data() + first, count, MPI_BYTE, to, kTag, MPI_COMM_WORLD, request), "MPI_Isend");
      });
    wait();
  }

  void leave() override {
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    check(MPI_Finalize(), "MPI_Finalize");
  }

 private:
  template <class Start>
  void in_parts(size_t size, const Start& start) {
    for (size_t first = 0; first < size; first += kMost) {
      requests_.emplace_back();
      start(first, static_cast<int>(std::min(kMost, size - first)), &requests_.back());
    }
  }

  // MPI's own wait keeps its processor busy. Where there are more ranks than processors the others need it, so after a
  // moment this one gives way, and later it sleeps between looks.
  void wait() {
    constexpr int kBusy = 2000, kGivingWay = 20000;
    const auto count = static_cast<int>(requests_.size());
    for (int looks = 0;; ++looks) {
      int done = 0;
      check(MPI_Testall(count, requests_.data(), &done, MPI_STATUSES_IGNORE), "a message to or from another rank");
      if (done) return;
      if (looks < kBusy) continue;
      const timespec pause{0, looks < kGivingWay ? 0 : 50'000};
      nanosleep(&pause, nullptr);
    }
  }

  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;
};

}  // namespace
}  // namespace linnet

extern "C" __attribute__((visibility("default"))) linnet::Communicator* linnet_mpi_open(const char* program_version,
                                                                                        char* message,
                                                                                        size_t message_size) {
  using namespace linnet;
  try {
    if (std::string(program_version) != comm_version())
      fail_user("the MPI module is of another build (" + std::string(comm_version()) + ") than the program (" +
                program_version + ")");
    // Never destroyed: leave() ends the communication, and a rank that fails must not wait for the others.
    static auto* world = new MpiCommunicator;
    return world;
  } catch (const std::exception& error) {
    std::snprintf(message, message_size, "%s", error.what());
    return nullptr;
  }
}
