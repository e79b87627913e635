// The part of stb_image (github.com/nothings/stb, Debian's libstb-dev) that Linnet uses. image_stb.cpp holds its code,
// so that the warnings of a foreign header stay there.
#pragma once
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_FAILURE_USERMSG
#include <stb/stb_image.h>
