#compdef linnet
# Completion of linnet for zsh, printed by `linnet completion zsh`.
_linnet() {
  local command= i
  for ((i = 2; i < CURRENT; ++i)); do
    case "$command ${words[i]}" in
      @COMMANDS@) command=${command:+$command }${words[i]} ;;
      *) break ;;
    esac
  done
  # _arguments expects the command alone before what it takes.
  words=(linnet "${(@)words[i,-1]}")
  ((CURRENT -= i - 2))
  case $command in
@CASES@  esac
}
if [[ $funcstack[1] == _linnet ]]; then _linnet "$@"; else compdef _linnet linnet; fi
