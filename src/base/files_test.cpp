#include "base/files.h"
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
class Files : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string put(const std::string& name, const std::string& bytes) const { return made_.write(name, bytes); }
  const testing::TemporaryFolder made_;
  const std::string folder_ = made_.path();
};

TEST(DeviceFiles, AreWrittenAndStayDevices) {
  EXPECT_THROW(write_file_atomically("/dev/full", "text"), Error);
  write_file_atomically("/dev/null", "text");
  for (const char* path : {"/dev/full", "/dev/null"}) {
    struct stat status {};
    ASSERT_EQ(::stat(path, &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode)) << path;
  }
}

// Nobody else reads a run where the umask says so, and a group may write where it says that.
TEST_F(Files, HaveThePermissionsThatTheUmaskLeaves) {
  for (const auto& [mask, file_mode, folder_mode] :
      {std::tuple{0077u, 0600u, 0700u}, std::tuple{0022u, 0644u, 0755u}, std::tuple{0002u, 0664u, 0775u}}) {
    const mode_t before = ::umask(mask);
    const std::string folder = path("run" + std::to_string(mask));
    make_directories(folder);
    write_file_atomically(folder + "/config.toml", "x");
    AppendFile(folder + "/metrics.jsonl").write_line("{}");
    FolderLock{folder};
    ::umask(before);
    struct stat status {};
    ASSERT_EQ(::stat(folder.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, folder_mode);
    for (const char* name : {"/config.toml", "/metrics.jsonl", "/.lock"}) {
      ASSERT_EQ(::stat((folder + name).c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 0777, file_mode) << name;
    }
  }
}

TEST_F(Files, ReadsWhatIsThere) {
  const std::string bytes("a\0b\r\n", 5);
  EXPECT_EQ(read_file(put("x", bytes)), bytes);
  EXPECT_EQ(read_file(put("empty", "")), "");
}

TEST_F(Files, ReadingNamesTheProblem) {
  const std::string missing = error_of([&] { read_file(path("missing")); });
  EXPECT_EQ(missing, "cannot read '" + path("missing") + "': No such file or directory");
  EXPECT_PRED2(has_text, error_of([&] { read_file(folder_); }), "Is a directory");
  EXPECT_PRED2(has_text, error_of([&] { MappedFile mapped(folder_); }), "Is a directory");
  if (::geteuid() != 0) {  // nothing is unreadable for root
    ::chmod(put("secret", "x").c_str(), 0);
    EXPECT_PRED2(has_text, error_of([&] { read_file(path("secret")); }), "Permission denied");
  }
}

TEST_F(Files, APipeOrDeviceIsNotWaitedForButWhereOneIsAskedFor) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_PRED2(has_text, error_of([&] { read_file(path("pipe")); }), "not a regular file");
  EXPECT_PRED2(has_text, error_of([] { read_file("/dev/zero"); }), "not a regular file");
  std::thread writer([&] { std::ofstream(path("pipe")) << "text"; });
  EXPECT_EQ(read_input(path("pipe")), "text");
  writer.join();
}

TEST_F(Files, MakesFoldersWithTheirParents) {
  make_directories(path("a/b/c"));
  make_directories(path("a/b/c"));
  EXPECT_TRUE(file_exists(path("a/b/c")));
  put("file", "");
  EXPECT_NE(error_of([&] { make_directories(path("file")); }), "no error");
  EXPECT_PRED2(has_text, error_of([&] { make_directories(path("file/x")); }), path("file/x"));
  std::filesystem::create_symlink("nowhere", path("link"));
  EXPECT_PRED2(has_text, error_of([&] { make_directories(path("link/x")); }), "/link' is a link to 'nowhere'");
}

TEST_F(Files, FreeSpaceOfAFolderThatIsStillToBeMade) {
  EXPECT_GT(free_disk_bytes(path("not/yet/there")), 0u);
  EXPECT_GT(free_disk_bytes("."), 0u);
}

TEST_F(Files, AtomicFileReplacesOnlyWhenCommitted) {
  const std::string target = put("x", "old");
  {
    AtomicFile file(target);
    file.write("half");
    EXPECT_EQ(read_file(target), "old");
  }
  EXPECT_EQ(read_file(target), "old");
  write_file_atomically(target, "new");
  EXPECT_EQ(read_file(target), "new");
  EXPECT_FALSE(file_exists(target + ".tmp"));
}

TEST_F(Files, AtomicFileOverwritesWhatACrashLeft) {
  put("x.tmp", "a long half-written file of a process that was killed");
  write_file_atomically(path("x"), "new");
  EXPECT_EQ(read_file(path("x")), "new");
}

TEST_F(Files, AtomicFileReplacesWhatALinkLeadsTo) {
  make_directories(path("folder"));
  const std::string target = put("folder/x", "old");
  std::filesystem::create_symlink("folder/x", path("link"));
  write_file_atomically(path("link"), "new");
  EXPECT_EQ(read_file(target), "new");
  std::filesystem::create_symlink("../link", path("folder/second"));
  std::filesystem::remove(target);
  write_file_atomically(path("folder/second"), "made");
  EXPECT_EQ(read_file(target), "made");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")) && std::filesystem::is_symlink(path("folder/second")));
  std::filesystem::create_symlink("circle", path("circle"));
  EXPECT_PRED2(has_text, error_of([&] { write_file_atomically(path("circle"), ""); }, ErrorKind::kSystem), "circle");
}

// `linnet report RUN -o /dev/stdout >> FILE`
TEST_F(Files, AtomicFileGoesOnInAnOpenFile) {
  const Descriptor opened(::open(put("x", "old,").c_str(), O_WRONLY | O_APPEND));
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(opened.get()), path("link"));
  write_file_atomically(path("link"), "new");
  EXPECT_EQ(read_file(path("x")), "old,new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
}

TEST_F(Files, AFullDiskKeepsTheOldFile) {
  const std::string target = put("x", "old");
  std::filesystem::create_symlink("/dev/full", target + ".tmp");
  const std::string text = error_of([&] { write_file_atomically(target, "new"); }, ErrorKind::kSystem);
  EXPECT_EQ(text, "cannot write '" + target + "': No space left on device");
  EXPECT_EQ(read_file(target), "old");
  EXPECT_FALSE(std::filesystem::is_symlink(target + ".tmp"));
  EXPECT_PRED2(has_text, error_of([] { AppendFile("/dev/full").write_line("x"); }, ErrorKind::kSystem), "/dev/full");
}

TEST_F(Files, WritingWhereNothingCanBeWritten) {
  EXPECT_NE(error_of([&] { write_file_atomically(path("no/folder"), ""); }, ErrorKind::kSystem), "no error");
  EXPECT_NE(error_of([&] { AppendFile file(path("no/folder")); }, ErrorKind::kSystem), "no error");
  EXPECT_NE(error_of([&] { FolderLock lock(path("no")); }, ErrorKind::kSystem), "no error");
  EXPECT_NE(error_of([&] { write_file_atomically(folder_, ""); }), "no error");
}

TEST_F(Files, MapsAFile) {
  put("x", "hello");
  MappedFile mapped(path("x"));
  MappedFile moved = std::move(mapped);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.data()), moved.size()), "hello");
  EXPECT_EQ(mapped.size(), 0u);
  EXPECT_EQ(MappedFile(put("empty", "")).size(), 0u);
}

TEST_F(Files, AppendsLinesAndForgetsThem) {
  const std::string target = put("lines", "one\n");
  {
    AppendFile file(target);
    const uint64_t after_one = file.size();
    file.write_line("two");
    file.write_line("three");
    EXPECT_EQ(read_file(target), "one\ntwo\nthree\n");
    file.truncate_to(after_one);
    file.write_line("2");
    file.sync();
  }
  EXPECT_EQ(read_file(target), "one\n2\n");
  AppendFile file(target);
  EXPECT_PRED2(has_text, error_of([&] { file.truncate_to(100); }), target);
}

// Runs `body` in a child process and returns its exit code.
template <typename Body> int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST_F(Files, ALockedFolderNamesItsHolder) {
  const std::string expected = "run folder '" + folder_ + "' is in use by process " + std::to_string(::getpid());
  {
    FolderLock lock(folder_);
    EXPECT_EQ(in_child([&] { return error_of([&] { FolderLock second(folder_); }) == expected ? 1 : 2; }), 1);
  }
  FolderLock again(folder_);
}

TEST_F(Files, ALockKnowsWhetherItsFolderWasReplaced) {
  const std::string folder = path("locked");
  std::filesystem::create_directory(folder);
  const FolderLock lock(folder);
  lock.check();
  std::filesystem::remove_all(folder);
  EXPECT_PRED2(has_text, error_of([&] { lock.check(); }), "was removed or replaced");
  std::filesystem::create_directory(folder);
  const FolderLock other(folder);
  EXPECT_NE(error_of([&] { lock.check(); }), "no error");
  other.check();
}

TEST_F(Files, AKilledHolderLeavesTheFolderFree) {
  in_child([&] {
    new FolderLock(folder_);  // never destroyed: the process just ends
    return 0;
  });
  EXPECT_TRUE(file_exists(path(".lock")));
  FolderLock lock(folder_);
}
}  // namespace
}  // namespace linnet
