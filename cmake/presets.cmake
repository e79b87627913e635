# Writes OUT, a C++ file with presets() of the TOML files FILES, whose first line is a comment that describes the
# preset NAME.toml. Run while building:
#   cmake -D OUT=... "-D FILES=a.toml;b.toml" -P presets.cmake
set(rows "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WLE)
  file(READ ${file} toml)
  string(FIND "${toml}" "\n" end)
  math(EXPR length "${end} - 2")
  string(SUBSTRING "${toml}" 2 ${length} description)
  string(SUBSTRING "${toml}" ${end} -1 toml)
  string(APPEND rows "    {\"${name}\", R\"preset(${description})preset\", R\"preset(${toml})preset\"},\n")
endforeach()
file(WRITE ${OUT} "#include \"config/config.h\"\n\nnamespace linnet {\nnamespace {\n\nconstexpr Preset kPresets[] = {\n${rows}};\n\n}  // namespace\n\nstd::span<const Preset> presets() { return kPresets; }\n\n}  // namespace linnet\n")
