// The message of the error that a call ends with, and what it says.
#pragma once
#include <gtest/gtest.h>
#include <string>
#include "base/error.h"

namespace linnet {
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

// The message with the paths of files in `folder` written as their names.
inline std::string without_folder(std::string message, const std::string& folder) {
  for (size_t at; (at = message.find(folder + "/")) != message.npos;) message.erase(at, folder.size() + 1);
  return message;
}

// Whether `text` has `part`: EXPECT_PRED2(mentions, error_of(...), "part") shows both if it does not.
inline bool mentions(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
}  // namespace linnet
