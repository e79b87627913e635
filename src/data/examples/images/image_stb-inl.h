// The parts of stb_image and stb_image_resize (github.com/nothings/stb, Debian's libstb-dev) that Linnet uses.
// image_stb.cpp holds their code, so that the warnings of foreign headers stay there.
#pragma once
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_FAILURE_USERMSG
#include <stb/stb_image.h>
#include <stb/stb_image_resize.h>
