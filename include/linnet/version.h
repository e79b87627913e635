// The version of the library: as macros, what a program was compiled with; as functions, what it runs with.
#pragma once

// Changes when a program has to be changed to compile again.
#define LINNET_VERSION_MAJOR 0
// Changes when something is added; before version 1 also when a program has to be changed.
#define LINNET_VERSION_MINOR 2
// Changes when only mistakes are mended.
#define LINNET_VERSION_PATCH 0
// The three as one number that can be compared: 1002003 is 1.2.3.
#define LINNET_VERSION (LINNET_VERSION_MAJOR * 1000000 + LINNET_VERSION_MINOR * 1000 + LINNET_VERSION_PATCH)

namespace linnet {
// The version of the library that is linked, for example "0.2.0".
const char* version();
// The same as LINNET_VERSION has it.
int version_number();
}  // namespace linnet
