// The part of stb_image_resize (github.com/nothings/stb, Debian's libstb-dev) that Linnet uses. image_stb.cpp holds its
// code.
#pragma once
#include <stb/stb_image_resize.h>
