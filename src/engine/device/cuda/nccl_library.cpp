#include "engine/device/cuda/nccl_library.h"

#if LINNET_HAS_NCCL
#include "base/error.h"
#include "engine/device/cuda/libraries.h"

namespace linnet {
namespace {

NcclFunctions load() {
  void* library = open_library({"libnccl.so.2", "libnccl.so"});
  NcclFunctions f{};
  find_symbol(library, "ncclGetVersion", f.get_version);
  find_symbol(library, "ncclGetErrorString", f.error_string);
  find_symbol(library, "ncclGetLastError", f.last_error);
  find_symbol(library, "ncclGetUniqueId", f.get_unique_id);
  find_symbol(library, "ncclCommInitRank", f.init_rank);
  find_symbol(library, "ncclCommDestroy", f.destroy);
  find_symbol(library, "ncclCommAbort", f.abort);
  find_symbol(library, "ncclGroupStart", f.group_start);
  find_symbol(library, "ncclGroupEnd", f.group_end);
  find_symbol(library, "ncclSend", f.send);
  find_symbol(library, "ncclRecv", f.receive);
  find_symbol(library, "ncclAllGather", f.all_gather);
  find_symbol(library, "ncclBroadcast", f.broadcast);
  return f;
}

}  // namespace

const NcclFunctions& nccl() {
  static const NcclFunctions functions = load();
  return functions;
}

std::string nccl_version() {
  int version = 0;
  nccl_check(nccl().get_version(&version), "reading its version");
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void nccl_check(ncclResult_t status, const char* doing) {
  if (status == ncclSuccess) return;
  errno = 0;  // fail_system would add it
  std::string text = std::string("NCCL: ") + doing + ": " + nccl().error_string(status);
  if (const char* more = nccl().last_error(nullptr); more && *more) text += std::string(": ") + more;
  if (const size_t line = text.find('\n'); line != text.npos) text.resize(line);
  fail_system(text);
}

}  // namespace linnet
#endif
