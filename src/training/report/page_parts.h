// What pages are made of: the files of src/training/report/page, as the build embeds them (cmake/embed.cmake), filled in.
#pragma once
#include <string>

namespace linnet {

extern const char* const kPageHtml;
extern const char* const kPageStyle;
extern const char* const kPageScript;     // of reports about runs
extern const char* const kInspectScript;  // of inspections

// A page with this script, which reads `json`. `command`: of linnet, which made the page.
std::string filled_page(const std::string& title, const std::string& command, const char* script,
                        const std::string& json);

}  // namespace linnet
