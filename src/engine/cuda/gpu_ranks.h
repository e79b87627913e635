// Ranks with a GPU each: NCCL moves their messages between the GPUs, and Linnet's kernels add.
#pragma once
#include <string>
#include "base/error.h"
#include "distributed/comm/communicator.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/libraries.h"

// NCCL's functions, looked up when ranks on GPUs are joined. LINNET_HAS_NCCL is 0 if Linnet was built without nccl.h.
#if __has_include(<nccl.h>)
#define LINNET_HAS_NCCL 1
#include <nccl.h>

namespace linnet {
struct NcclFunctions {
  OpenLibrary library{{"libnccl.so.2", "libnccl.so"}};
  decltype(&::ncclGetVersion) get_version = library("ncclGetVersion");
  decltype(&::ncclGetErrorString) error_string = library("ncclGetErrorString");
  decltype(&::ncclGetLastError) last_error = library("ncclGetLastError");
  decltype(&::ncclGetUniqueId) get_unique_id = library("ncclGetUniqueId");
  decltype(&::ncclCommInitRank) init_rank = library("ncclCommInitRank");
  decltype(&::ncclCommDestroy) destroy = library("ncclCommDestroy");
  decltype(&::ncclCommAbort) abort = library("ncclCommAbort");
  decltype(&::ncclGroupStart) group_start = library("ncclGroupStart");
  decltype(&::ncclGroupEnd) group_end = library("ncclGroupEnd");
  decltype(&::ncclSend) send = library("ncclSend");
  decltype(&::ncclRecv) receive = library("ncclRecv");
  decltype(&::ncclAllGather) all_gather = library("ncclAllGather");
  decltype(&::ncclBroadcast) broadcast = library("ncclBroadcast");
};
// Error(kSystem) if the library is not found, or is older than 2.13.
inline const NcclFunctions& nccl() {
  static const NcclFunctions functions;
  return functions;
}

inline void nccl_check(ncclResult_t status, const char* doing) {
  if (status == ncclSuccess) return;
  std::string text = std::string("NCCL: ") + doing + ": " + nccl().error_string(status);
  if (const char* more = nccl().last_error(nullptr); more && *more) text += std::string(": ") + more;
  if (const size_t line = text.find('\n'); line != text.npos) text.resize(line);
  fail_system(text);
}

inline std::string nccl_version() {  // "2.27.3"
  int version = 0;
  nccl_check(nccl().get_version(&version), "reading its version");
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}
}  // namespace linnet
#else
#define LINNET_HAS_NCCL 0
#endif

namespace linnet {
// Collective; the world passes rank 0's unique id for NCCL to all ranks. Returns no ranks, and the reason, if a rank
// has no NCCL or another version, or two ranks have one GPU, which NCCL refuses. AgreedError if NCCL fails. With one
// rank NCCL is not used.
JoinedDevices join_gpus(CudaDevice& device, Communicator& world);
}  // namespace linnet
