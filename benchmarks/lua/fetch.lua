-- GET messages. Arguments: queue.
dofile(os.getenv("FSMQ_BENCH_LUA") .. "/common.lua")

function init(args)
  message = "GET /" .. args[1] .. "/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"
end

function request()
  return message
end

function response(status, headers, body)
  count(status)
end
