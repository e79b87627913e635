#include "linnet/version.h"

#define LINNET_TEXT_OF(number) #number
#define LINNET_TEXT(number) LINNET_TEXT_OF(number)

namespace linnet {
const char* version() {
  return LINNET_TEXT(LINNET_VERSION_MAJOR) "." LINNET_TEXT(LINNET_VERSION_MINOR) "." LINNET_TEXT(LINNET_VERSION_PATCH);
}

int version_number() { return LINNET_VERSION; }
}  // namespace linnet
