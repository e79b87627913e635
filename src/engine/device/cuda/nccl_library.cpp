#include "engine/device/cuda/nccl_library.h"

#if LINNET_HAS_NCCL
#include "base/error.h"

namespace linnet {

const NcclFunctions& nccl() {
  static const NcclFunctions functions;
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
  std::string text = std::string("NCCL: ") + doing + ": " + nccl().error_string(status);
  if (const char* more = nccl().last_error(nullptr); more && *more) text += std::string(": ") + more;
  if (const size_t line = text.find('\n'); line != text.npos) text.resize(line);
  fail_system(text);
}

}  // namespace linnet
#endif
