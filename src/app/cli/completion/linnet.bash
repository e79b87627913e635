# Completion of linnet for bash, printed by `linnet completion bash`.
_linnet() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= options= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${COMP_WORDS[i]}" in
      @COMMANDS@) command=${command:+$command }${COMP_WORDS[i]} ;;
      *) break ;;
    esac
  done
  COMPREPLY=()
  case "$command $prev" in
@VALUES@  esac
  if [[ $cur == -* ]]; then
    case $command in
@OPTIONS@    esac
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    return
  fi
  case $command in
@WORDS@  esac
}
complete -F _linnet linnet
