// NCCL for tests without a GPU (libnccl.so.2): ranks are processes of this machine, which send over Unix sockets when
// the fake runtime comes to the call in its stream. As on GPUs a message is done when the other side has it, and a
// group's messages are done together: ranks that call in different orders block each other, which is told after a
// while. Refused are host memory, memory of another GPU, streams of another GPU, overlapping messages, ranks that are
// not there; at the receiver another size or another call than the sender's.
//
// linnet_fake_nccl_calls() tells what was called since it was last asked: a line for each group or single call.
// LINNET_FAKE_NCCL=VERSION is the version it has; LINNET_FAKE_NCCL_FAILS=NAME refuses all calls of that function.
#include <dlfcn.h>
#include <nccl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {
constexpr int kPatience = 60;  // seconds

struct Header {
  char call;  // s(end), g(ather), b(roadcast)
  uint64_t bytes;
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "fake NCCL: %s\n", why.c_str());
  std::fflush(stderr);
  _exit(86);
}

void write_all(int socket, const void* bytes, size_t count) {
  for (const auto* from = static_cast<const char*>(bytes); count > 0;) {
    const ssize_t done = send(socket, from, count, MSG_NOSIGNAL);
    if (done <= 0) give_up("a message was not taken: the ranks block each other, or one is gone");
    from += done, count -= static_cast<size_t>(done);
  }
}
void read_all(int socket, void* bytes, size_t count) {
  for (auto* to = static_cast<char*>(bytes); count > 0;) {
    const ssize_t done = recv(socket, to, count, 0);
    if (done <= 0) give_up("a message did not come: the ranks block each other, or one is gone");
    to += done, count -= static_cast<size_t>(done);
  }
}

sockaddr_un address_of(const std::string& id, int rank, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = id + "-" + std::to_string(rank);  // abstract: begins with a zero
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

void be_patient(int socket) {
  const timeval patience{kPatience, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

std::string& calls() {
  static std::string calls;
  return calls;
}
}  // namespace

struct ncclComm {
  int rank, ranks;
  std::vector<int> to, from;  // sockets by rank
};

namespace {
struct Message {
  bool outgoing;
  Header header;
  int peer;
  std::byte* bytes;
};

struct Group {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Message> messages;
  std::string text;

  // The messages of each direction to each rank in their order, all directions at once.
  void run() const {
    std::vector<std::thread> threads;
    for (const bool outgoing : {true, false})
      for (int peer = 0; peer < comm->ranks; ++peer)
        threads.emplace_back([this, outgoing, peer] {
          for (const Message& message : messages)
            if (message.outgoing == outgoing && message.peer == peer) outgoing ? put(message) : take(message);
        });
    for (std::thread& thread : threads) thread.join();
  }
  void put(const Message& message) const {
    const int socket = comm->to[static_cast<size_t>(message.peer)];
    write_all(socket, &message.header, sizeof message.header);
    write_all(socket, message.bytes, message.header.bytes);
    char taken;
    read_all(socket, &taken, 1);
  }
  void take(const Message& message) const {
    const int socket = comm->from[static_cast<size_t>(message.peer)];
    Header header;
    read_all(socket, &header, sizeof header);
    if (header.call != message.header.call || header.bytes != message.header.bytes)
      give_up("rank " + std::to_string(comm->rank) + " expects " + std::to_string(message.header.bytes) +
              " bytes by call '" + message.header.call + "' from rank " + std::to_string(message.peer) +
              ", which sends " + std::to_string(header.bytes) + " by '" + header.call + "'");
    read_all(socket, message.bytes, header.bytes);
    write_all(socket, "k", 1);
  }
};

int depth = 0;
Group open_group;

ncclResult_t refuse(const std::string& why) {
  std::fprintf(stderr, "fake NCCL: %s\n", why.c_str());
  return ncclInvalidArgument;
}

bool fails(const char* function) {
  const char* const which = std::getenv("LINNET_FAKE_NCCL_FAILS");
  return which && std::string(which) == function;
}

ncclResult_t close_group() {
  auto group = std::make_unique<Group>(std::move(open_group));
  open_group = {};
  if (!group->comm) return ncclSuccess;
  for (size_t i = 0; i < group->messages.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Message &a = group->messages[i], &b = group->messages[j];
      if (a.outgoing && b.outgoing) continue;
      if (a.bytes < b.bytes + b.header.bytes && b.bytes < a.bytes + a.header.bytes)
        return refuse("messages of one group overlap in memory");
    }
  calls() += group->text + "\n";
  using Queue = void (*)(cudaStream_t, void (*)(void*), void*);
  static const auto queue = reinterpret_cast<Queue>(dlsym(RTLD_DEFAULT, "linnet_fake_queue"));
  if (!queue) return refuse("the fake runtime is not there");
  void* const memory = std::malloc(sizeof(Group*));
  const cudaStream_t stream = group->stream;
  *static_cast<Group**>(memory) = group.release();
  queue(
      stream, [](void* what) { std::unique_ptr<Group>(*static_cast<Group**>(what))->run(); }, memory);
  return ncclSuccess;
}

// Adds a call's messages to the group that is open, or does them alone.
ncclResult_t add_call(ncclComm_t comm, cudaStream_t stream, const std::string& text, std::vector<Message> messages) {
  if (open_group.comm && (open_group.comm != comm || open_group.stream != stream))
    return refuse("calls of one group for two communicators or streams");
  using IsDeviceMemory = bool (*)(const void*, size_t);
  static const auto is_device_memory =
      reinterpret_cast<IsDeviceMemory>(dlsym(RTLD_DEFAULT, "linnet_fake_is_device_memory"));
  for (const Message& message : messages) {
    if (message.peer < 0 || message.peer >= comm->ranks || message.peer == comm->rank)
      return refuse("there is no rank " + std::to_string(message.peer));
    if (!is_device_memory || !is_device_memory(message.bytes, message.header.bytes))
      return refuse("a message that is not in the GPU's memory");
  }
  open_group.comm = comm, open_group.stream = stream;
  open_group.text += (open_group.text.empty() ? "" : ", ") + text;
  open_group.messages.insert(open_group.messages.end(), messages.begin(), messages.end());
  return depth == 0 ? close_group() : ncclSuccess;
}

size_t bytes_of(size_t count, ncclDataType_t type) { return type == ncclInt8 ? count : count * 4; }

std::byte* address(const void* memory) { return static_cast<std::byte*>(const_cast<void*>(memory)); }
}  // namespace

extern "C" {

__attribute__((visibility("default"))) const char* linnet_fake_nccl_calls() {
  static std::string told;
  told = std::exchange(calls(), {});
  return told.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  const char* const given = std::getenv("LINNET_FAKE_NCCL");
  return *version = given ? std::atoi(given) : 22703, ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "an error of the fake NCCL"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (fails("ncclGetUniqueId")) return ncclSystemError;
  static int number = 0;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "linnet-fake-nccl-%d-%d", static_cast<int>(getpid()), number++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* made, int ranks, ncclUniqueId id, int rank) {
  if (fails("ncclCommInitRank")) return ncclSystemError;
  if (!id.internal[0]) return refuse("an id that rank 0 has not made");
  auto comm = std::make_unique<ncclComm>(ncclComm{
      rank, ranks, std::vector<int>(static_cast<size_t>(ranks), -1), std::vector<int>(static_cast<size_t>(ranks), -1)});
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  socklen_t length;
  sockaddr_un own = address_of(id.internal, rank, length);
  if (bind(listener, reinterpret_cast<sockaddr*>(&own), length) != 0 || listen(listener, ranks) != 0)
    return refuse("two ranks have one number");
  be_patient(listener);
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    sockaddr_un other = address_of(id.internal, peer, length);
    int& to = comm->to[static_cast<size_t>(peer)];
    for (int tries = 0;; ++tries) {
      to = socket(AF_UNIX, SOCK_STREAM, 0);
      if (connect(to, reinterpret_cast<sockaddr*>(&other), length) == 0) break;
      close(to);
      if (tries == 100 * kPatience) give_up("rank " + std::to_string(peer) + " does not join");
      usleep(10000);
    }
    be_patient(to);
    write_all(to, &rank, sizeof rank);
  }
  for (int i = 1; i < ranks; ++i) {
    const int from = accept(listener, nullptr, nullptr);
    if (from < 0) give_up("a rank does not join");
    be_patient(from);
    int peer = 0;
    read_all(from, &peer, sizeof peer);
    comm->from[static_cast<size_t>(peer)] = from;
  }
  close(listener);
  *made = comm.release();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  for (const int socket : comm->to) close(socket);
  for (const int socket : comm->from) close(socket);
  return delete comm, ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return refuse("a group that was not begun");
  return --depth > 0 ? ncclSuccess : close_group();
}

ncclResult_t ncclSend(
    const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = bytes_of(count, type);
  return add_call(comm, stream, "send " + std::to_string(bytes) + " to " + std::to_string(peer),
      {{true, {'s', bytes}, peer, address(from)}});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = bytes_of(count, type);
  return add_call(comm, stream, "receive " + std::to_string(bytes) + " from " + std::to_string(peer),
      {{false, {'s', bytes}, peer, address(to)}});
}

ncclResult_t ncclAllGather(
    const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = bytes_of(count, type);
  const auto part = [&](int rank) { return address(to) + static_cast<size_t>(rank) * bytes; };
  if (part(comm->rank) != from) return refuse("a gathering that is not in place");
  std::vector<Message> messages;
  for (int rank = 0; rank < comm->ranks; ++rank) {
    if (rank == comm->rank) continue;
    messages.push_back({true, {'g', bytes}, rank, address(from)});
    messages.push_back({false, {'g', bytes}, rank, part(rank)});
  }
  return add_call(comm, stream, "all_gather " + std::to_string(bytes), messages);
}

ncclResult_t ncclBroadcast(
    const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = bytes_of(count, type);
  std::vector<Message> messages;
  if (comm->rank == root)
    for (int rank = 0; rank < comm->ranks; ++rank) {
      if (rank != root) messages.push_back({true, {'b', bytes}, rank, address(from)});
    }
  else messages.push_back({false, {'b', bytes}, root, address(to)});
  return add_call(comm, stream, "broadcast " + std::to_string(bytes) + " of " + std::to_string(root), messages);
}

}  // extern "C"
