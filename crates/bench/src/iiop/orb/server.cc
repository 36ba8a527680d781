// Says what it's told. Its object is /echo; where it listens, omniORB's own options say.
#include "echo.hh"
#include <cstdio>

struct Echo_i : POA_Echo {
    Bytes* back(const Bytes& content) { return new Bytes(content); }
};

int main(int count, char** arguments)
{
    CORBA::ORB_var orb = CORBA::ORB_init(count, arguments);
    CORBA::Object_var object = orb->resolve_initial_references("omniINSPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    PortableServer::POAManager_var manager = poa->the_POAManager();
    manager->activate();
    PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId("echo");
    poa->activate_object_with_id(id, new Echo_i);
    puts("ready");
    fflush(stdout);
    orb->run();
}
