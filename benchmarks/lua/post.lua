-- POST bodies of one size. Arguments: queue, bytes.
dofile(os.getenv("FSMQ_BENCH_LUA") .. "/common.lua")

function init(args)
  local body = string.rep("x", tonumber(args[2]))
  message = "POST /" .. args[1] .. "/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: " ..
    #body .. "\r\n\r\n" .. body
end

function request()
  return message
end
