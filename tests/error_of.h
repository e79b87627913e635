// The message of the error that a call ends with.
#pragma once
#include <gtest/gtest.h>
#include <string>
#include "base/error.h"

namespace linnet {
// The message with the paths of files in `folder` written as their names.
inline std::string without_folder(std::string message, const std::string& folder) {
  for (size_t at; (at = message.find(folder + "/")) != message.npos;) message.erase(at, folder.size() + 1);
  return message;
}

// In one line, of an error of this kind; "no error" if there is none.
template <class Action> std::string error_of(const Action& action, ErrorKind kind = ErrorKind::kUser) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

// For EXPECT_PRED2, which prints both where the message lacks the part.
inline bool has_text(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}
}  // namespace linnet
