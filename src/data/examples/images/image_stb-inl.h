// The used parts of stb_image and stb_image_resize (github.com/nothings/stb, Debian's libstb-dev). image_stb.cpp has
// their code, which keeps the warnings of foreign headers there.
#pragma once
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_FAILURE_USERMSG
#include <stb/stb_image.h>
#include <stb/stb_image_resize.h>
