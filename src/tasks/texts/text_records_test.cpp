// Records of texts as their files have them.
#include "tasks/texts/text_records.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "tasks/texts/marked_texts.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
using Texts = std::vector<std::string>;

class TextFiles : public ::testing::Test {
 protected:
  Texts tagged(const std::string& text) {
    return mapped(read_tagged_texts(folder_.write("words.conll", text), {}).records,
        [](const TextRecord& record) { return record.text + " " + record.label["tags"].dump(); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TextFiles, CommentsBeforeAnEntryOfConllAreNoWords) {
  const Texts two{R"(Anna sings ["B-PER","O"])", R"(# 1 ["O","O"])"};
  EXPECT_EQ(tagged("# newdoc\n#\n\n# text = Anna sings\n# one more\nAnna B-PER\nsings O\n\n# O\n1 O\n"), two);
  EXPECT_EQ(tagged("Anna NN X B-PER\nsings VB X O\n\n# id 2-a domain=x\n# NN X O\n1 CD X O\n"), two);
  EXPECT_EQ(tagged("a O\n# O\nb O\n"), Texts{R"(a # b ["O","O","O"])"});
  const std::string untagged = folder_.write("untagged.conll", "# a text of words\nAnna\n#\n");
  Texts found;
  for_each_text_of_words(untagged, {}, [&](const std::string& text) { found.push_back(text); });
  EXPECT_EQ(found, Texts{"Anna #"});
}
}  // namespace
}  // namespace linnet
