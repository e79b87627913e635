// The functions of NCCL that Linnet calls, looked up when ranks on GPUs are joined. Declared where nccl.h was there
// when Linnet was built; otherwise LINNET_HAS_NCCL is 0.
#pragma once
#if __has_include(<nccl.h>)
#define LINNET_HAS_NCCL 1
#include <nccl.h>

#include <string>

namespace linnet {

struct NcclFunctions {
  decltype(&::ncclGetVersion) get_version;
  decltype(&::ncclGetErrorString) error_string;
  decltype(&::ncclGetLastError) last_error;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRank) init_rank;
  decltype(&::ncclCommDestroy) destroy;
  decltype(&::ncclCommAbort) abort;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) receive;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclBroadcast) broadcast;
};
// Error(kSystem) when the library is not to be found, or is older than 2.13.
const NcclFunctions& nccl();
std::string nccl_version();  // "2.27.3"
void nccl_check(ncclResult_t status, const char* doing);

}  // namespace linnet
#else
#define LINNET_HAS_NCCL 0
#endif
