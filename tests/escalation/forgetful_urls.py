"""URL configuration with one view that names no right."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def forgotten(request: HttpRequest) -> HttpResponse:
    return HttpResponse("for nobody")


urlpatterns = [path("forgotten/", forgotten), path("", include("claudeops.urls"))]
