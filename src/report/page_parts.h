// The files of src/report/page, as the build embeds them (cmake/embed.cmake).
#pragma once

namespace linnet {

extern const char* const kPageHtml;
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace linnet
