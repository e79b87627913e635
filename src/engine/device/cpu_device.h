// The CPU as a device: its memory is the host's, and what it is asked to do is done before the call returns.
#pragma once
#include "engine/device/device.h"

namespace linnet {

// One for the whole program.
Device& cpu_device();

}  // namespace linnet
