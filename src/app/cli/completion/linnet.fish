# Completion of linnet for fish, printed by `linnet completion fish`.
function __linnet_is --description 'whether the words so far name this command'
  set -l command
  for word in (commandline -opc)[2..-1]
    switch "$command $word"
      case @COMMANDS@
        set command (string trim "$command $word")
      case '*'
        break
    end
  end
  test "$command" = "$argv"
end
@LINES@